"""What the exercises of chapter 4 share: values, scales, tolerances.

A sum of L terms is L - 1 additions, each of which errs by at most eps/2 of the partial
sum that it makes. Added one after another, with signs at random, these partial sums
grow as the square root, and the errors, independent, come to about 0.35 * eps *
sqrt(L) * ||x||; terms of one sign come to 0.29 * eps * sqrt(L) * |sum|. Any tree errs
less. So ``2 * eps * sqrt(L) * (||x|| + |sum|)`` is some six deviations of the worst
order that is in use, and a sum kept in fp16 is 2^13 times as far off.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Launch,
    Output,
    Outputs,
    Problem,
    Tolerance,
)

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

Made = Callable[[Arguments], Outputs]


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


# Whole blocks first: there the counts are round.
CASES = (
    *(vector_case(n) for n in (1024, 1000, 257, 255, 33, 31, 1, 0)),
    vector_case(2000, "shifted"),
    vector_case(700, "special"),
)

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


def by_folds(width: int) -> Made:
    """Return what adds each ``width`` neighbours up, in float64."""

    def output(arguments: Arguments) -> Outputs:
        return {"out": folded(tensor(arguments, "x"), width).double().sum(1)}

    return output


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


def of_matrix(made: Callable[[torch.Tensor], torch.Tensor]) -> Made:
    """Return what makes an output of the matrix x, in float64."""

    def output(arguments: Arguments) -> Outputs:
        return {"out": made(tensor(arguments, "x").double())}

    return output
