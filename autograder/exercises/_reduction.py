"""What the exercises of chapter 4 share: values, scales, tolerances.

A sum of L terms is L - 1 additions, each of which errs by at most eps/2 of the partial
sum that it makes. Added one after another, with signs at random, these partial sums
grow as the square root, and the errors, independent, come to about 0.35 * eps *
sqrt(L) * ||x||; terms of one sign come to 0.29 * eps * sqrt(L) * |sum|. Any tree errs
less. So ``2 * eps * sqrt(L) * (||x|| + |sum|)`` is some six deviations of the worst
order that is in use, and a sum kept in fp16 is 2^13 times as far off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Launch,
    NearMiss,
    Output,
    Outputs,
    Problem,
    Tolerance,
)

STEM = "reduction"
THREADS = 256
FACTOR = 2.0

_REGIMES = {
    "distinct": "normal values",
    "shifted": "values near 100",
    "special": "NaN and Inf among them",
}

# A warp that reads 32 neighbouring floats touches four sectors of 32 bytes.
# How it is summed is what is learned here: right values alone are an atomic sum.
SHARES = {"correct": 0.4, "counts": 0.4, "speed": 0.2}

Mistake = Callable[[Arguments], Outputs]


def vector_case(n: int, regime: str = "distinct") -> Case:
    """Return a case of one length, named as the learner reads it."""
    return Case(f"n = {n:,}, {_REGIMES[regime]}", {"n": n}, regime)


def matrix_case(rows: int, columns: int, regime: str = "distinct") -> Case:
    """Return a case of one shape, named as the learner reads it."""
    name = f"{rows:,} x {columns:,}, {_REGIMES[regime]}"
    return Case(name, {"rows": rows, "columns": columns}, regime)


def draw_values(count: int, regime: str, generator: torch.Generator) -> torch.Tensor:
    """Draw floats that differ at every place, in the case's regime."""
    x = torch.randn(count, generator=generator)
    if regime == "shifted":
        x += 100.0
    elif regime == "special" and count:
        # Few, so that most sums are numbers, and each of these spoils its own.
        for place, value in ((3, torch.nan), (count // 2, torch.inf)):
            x[place % count] = value
        x[-1] = -torch.inf
    return x


def drawn(generator: torch.Generator, low: int, high: int) -> int:
    """Draw a whole number from low to below high."""
    return int(torch.randint(low, high, (), generator=generator))


def hidden_lengths(generator: torch.Generator) -> Iterator[Case]:
    """Draw awkward lengths: around a warp, around a block, past several."""
    yield vector_case(drawn(generator, 2, 32))
    yield vector_case(drawn(generator, 33, 256), "shifted")
    yield vector_case(256 * drawn(generator, 1, 6) + drawn(generator, 1, 32))
    yield vector_case(256 * drawn(generator, 2, 6) - drawn(generator, 1, 32))
    yield vector_case(32 * drawn(generator, 9, 60), "special")
    yield vector_case(drawn(generator, 2000, 6000), "shifted")


def hidden_matrices(generator: torch.Generator) -> Iterator[Case]:
    """Draw awkward shapes: thin, wide, around warps and blocks."""
    yield matrix_case(drawn(generator, 1, 9), drawn(generator, 2, 32))
    yield matrix_case(drawn(generator, 2, 9), drawn(generator, 257, 600), "shifted")
    yield matrix_case(drawn(generator, 33, 70), drawn(generator, 33, 70))
    yield matrix_case(drawn(generator, 200, 400), drawn(generator, 1, 6), "special")
    yield matrix_case(drawn(generator, 2, 5), drawn(generator, 1500, 3000))


# --- sums of neighbours -----------------------------------------------------------


def blocks_for(n: int) -> int:
    """Return how many blocks of 256 threads cover n elements; one at least."""
    return max(1, -(-n // THREADS))


def problem_by(width: int) -> Callable[[Case, torch.Generator], Problem]:
    """Return what draws a vector whose every ``width`` neighbours make a sum."""

    def problem(case: Case, generator: torch.Generator) -> Problem:
        n = case.sizes["n"]
        blocks = blocks_for(n)
        return Problem(
            {"x": draw_values(n, case.regime, generator), "out": None, "n": n},
            {"out": Output((blocks * THREADS // width,), torch.float32)},
            Launch((blocks,), (THREADS,)),
        )

    return problem


def folded(x: torch.Tensor, width: int) -> torch.Tensor:
    """Return (sums, width): the elements of each sum, zeros past the end."""
    whole = blocks_for(x.numel()) * THREADS
    return torch.nn.functional.pad(x, (0, whole - x.numel())).view(-1, width)


def by_folds(
    width: int, sum_up: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> Mistake:
    """Return what adds each ``width`` neighbours up, or makes something else of them.

    Args:
        width: elements of a sum.
        sum_up: from (sums, width) to (sums,); a sum in float64 when absent.
    """

    def output(arguments: Arguments) -> Outputs:
        parts = folded(tensor(arguments, "x"), width).double()
        return {"out": parts.sum(1) if sum_up is None else sum_up(parts)}

    return output


def tail_mistakes(width: int) -> tuple[NearMiss, ...]:
    """Return what goes wrong where fewer than ``width`` elements are left."""

    def bringing(value: Callable[[torch.Tensor], float]) -> Mistake:
        def output(arguments: Arguments) -> Outputs:
            x = tensor(arguments, "x")
            past = width - folded(torch.ones_like(x), width).double().sum(1)
            sums = folded(x, width).double().sum(1)
            # Where nothing is missing nothing is added, not even 0 * infinity.
            more = past.clamp(min=1.0) * value(x)
            return {"out": torch.where(past > 0, sums + more, sums)}

        return output

    def without_the_last(arguments: Arguments) -> Outputs:
        x = tensor(arguments, "x").clone()
        x[-1:] = 0.0
        return {"out": folded(x, width).double().sum(1)}

    return (
        NearMiss(
            "last element missing",
            without_the_last,
            "The last element, x[n - 1], is missing: the guard is i < n.",
        ),
        NearMiss(
            "last element again",
            bringing(lambda x: float(x[-1]) if len(x) else 0.0),
            "Threads past the end bring the last element once more: they are to bring "
            "0, which changes no sum.",
        ),
        NearMiss(
            "ones past the end",
            bringing(lambda x: 1.0),
            "Threads past the end bring a 1, which changes no product. What changes no "
            "sum is 0.",
        ),
        NearMiss(
            "minus infinity past the end",
            bringing(lambda x: -torch.inf),
            "Threads past the end bring -infinity, which changes no maximum. What "
            "changes no sum is 0.",
        ),
    )


def tolerance_by(width: int) -> Tolerance:
    """Return the tolerance of sums of ``width`` neighbours."""

    def scale(arguments: Arguments) -> Outputs:
        return {"out": magnitude(folded(tensor(arguments, "x"), width), 1)}

    return Tolerance(FACTOR, length=lambda case: width, scale=scale)


def magnitude(parts: torch.Tensor, dim: int) -> torch.Tensor:
    """Return ||x|| + |sum| along a dimension: what rounding is relative to."""
    wide = finite(parts)
    return wide.square().sum(dim).sqrt() + wide.sum(dim).abs()


def finite(x: torch.Tensor) -> torch.Tensor:
    """Return x in float64, with zeros for NaN and Inf: a scale must be a number."""
    return x.double().nan_to_num(0.0, 0.0, 0.0)


# --- sums along a matrix ----------------------------------------------------------


def draw_matrix(case: Case, generator: torch.Generator) -> torch.Tensor:
    """Draw a rows x columns matrix."""
    rows, columns = case.sizes["rows"], case.sizes["columns"]
    return draw_values(rows * columns, case.regime, generator).view(rows, columns)


def tolerance_along(
    size: str, magnitudes: Callable[[torch.Tensor], torch.Tensor]
) -> Tolerance:
    """Return the tolerance of sums of one sign along ``rows`` or ``columns``.

    Args:
        size: how many terms a sum has.
        magnitudes: of the right outputs, from the finite part of x.
    """

    def scale(arguments: Arguments) -> Outputs:
        return {"out": magnitudes(finite(tensor(arguments, "x")))}

    return Tolerance(FACTOR, length=lambda case: case.sizes[size], scale=scale)


def of_matrix(made: Callable[[torch.Tensor], torch.Tensor]) -> Mistake:
    """Return what makes an output of the matrix x, in float64."""

    def output(arguments: Arguments) -> Outputs:
        return {"out": made(tensor(arguments, "x").double())}

    return output
