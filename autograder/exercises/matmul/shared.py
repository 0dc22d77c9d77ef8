"""What the exercises of chapter 6 share: shapes, launches, the tolerance.

**Tolerance.** A sum of k products p_i in fp32 is rounded k times, and each rounding
errs by at most eps / 2 of the partial sum. Where signs are random the i-th partial
sum is about sqrt(i) * rms(p), and the roundings add like a random walk, so that the
error's deviation is about eps * sqrt(k) / 5 times ``scale = sqrt(sum of p_i^2)``,
which is sqrt(k) * rms(p) (the largest of a row is taken for all of it). A factor of 4
is twenty deviations, whatever the order of the sum; factors rounded to TF32, whose
significand has 11 bits, err by about 2^-12 * scale, far outside up to k = 10^5.
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
    Speed,
    Structure,
    Tolerance,
)

SHARES = {"correct": 0.5, "counts": 0.3, "speed": 0.2}
LaunchOf = Callable[[int, int], Launch]

_REGIMES = {
    "distinct": "normal values",
    "special": "rows with NaN and Inf",
    "large": "values near 1e15",
}


def shape_case(m: int, n: int, k: int, regime: str = "distinct") -> Case:
    """Return a case of one shape, named as the learner reads it."""
    name = f"m, n, k = {m}, {n}, {k}, {_REGIMES[regime]}"
    return Case(name, {"m": m, "n": n, "k": k}, regime)


# No side equals another, so that no pitch can be mistaken unseen; the first is made
# of whole tiles, where the counts are round.
CASES = (
    shape_case(64, 96, 128),
    shape_case(33, 70, 50),
    shape_case(1, 100, 37),
    shape_case(45, 1, 3),
    shape_case(31, 65, 1),
    shape_case(5, 7, 0),
    shape_case(40, 24, 71, "special"),
    shape_case(34, 20, 96, "large"),
)


def in_fours(*cases: Case) -> tuple[Case, ...]:
    """Round n and k of each case up to a multiple of 4."""
    return tuple(
        shape_case(
            c.sizes["m"],
            -(-c.sizes["n"] // 4) * 4,
            -(-c.sizes["k"] // 4) * 4,
            c.regime,
        )
        for c in cases
    )


# For the kernels whose blocks make 128 x 128 elements.
FAST_CASES = in_fours(
    shape_case(128, 256, 64),
    shape_case(132, 260, 36),
    *CASES[2:6],
    shape_case(40, 132, 20, "special"),
    # Three blocks down: a stride of 127 rows leaves the last one out.
    shape_case(383, 8, 4),
)

WIDE_LOADS = Structure(
    holds=("LDG.E.128", "LDS.128", "FFMA"),
    lacks=("HMMA", "STL"),
    message="The values are right, and the machine code does not do what this rung is "
    "about: loads of 128 bits from global and from shared memory (LDG.E.128, "
    "LDS.128), products in fp32 (FFMA, no HMMA) and no register spilled to memory "
    "(STL).",
)


def tiles(across: int, down: int, *block: int) -> LaunchOf:
    """Return the launch with a block for each ``down`` x ``across`` elements of c."""

    def launch(m: int, n: int) -> Launch:
        return Launch((max(1, -(-n // across)), max(1, -(-m // down))), block)

    return launch


def draw_matrix(rows: int, columns: int, generator: torch.Generator) -> torch.Tensor:
    """Draw a matrix of normal values on the generator's device."""
    return torch.randn(rows, columns, generator=generator, device=generator.device)


def problem_with(launch: LaunchOf) -> Callable[[Case, torch.Generator], Problem]:
    """Return the function that draws a and b and launches in this way."""

    def problem(case: Case, generator: torch.Generator) -> Problem:
        m, n, k = (case.sizes[name] for name in ("m", "n", "k"))
        a, b = draw_matrix(m, k, generator), draw_matrix(k, n, generator)
        if case.regime == "large":
            a *= 1e15
        elif case.regime == "special":
            # Whole rows and columns: what is past the edge must not meet them.
            for start, value in enumerate((torch.nan, torch.inf, -torch.inf)):
                a[start::7, -1:] = value
                b[-1:, start::9] = value
        return Problem(
            {"a": a, "b": b, "c": None, "m": m, "n": n, "k": k},
            {"c": Output((m, n), torch.float32)},
            launch(m, n),
        )

    return problem


def operands(arguments: Arguments) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a and b in float64."""
    return tensor(arguments, "a").double(), tensor(arguments, "b").double()


def reference(arguments: Arguments) -> Outputs:
    """Return a @ b in float64."""
    a, b = operands(arguments)
    return {"c": a @ b}


def _scale(arguments: Arguments) -> Outputs:
    # NaN and Inf are compared as they are; the scale is for what is finite.
    squares = (x.nan_to_num(0, 0, 0).square() for x in operands(arguments))
    a, b = squares
    each = (a @ b).sqrt()
    if not each.numel():
        return {"c": each}
    # The largest of its row: a known mistake, which reads other elements of b, must
    # be recognised within the same bound.
    return {"c": each.amax(dim=1, keepdim=True).expand_as(each)}


TOLERANCE = Tolerance(factor=4.0, length=lambda case: case.sizes["k"], scale=_scale)


def library(arguments: Arguments) -> object:
    """Multiply with cuBLAS, in fp32 proper: TF32 would round the factors."""
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch.matmul(tensor(arguments, "a"), tensor(arguments, "b"))


def timed(size: int, bands: dict[str, float]) -> Speed:
    """Return the speed gate of a square product, rated by its operations."""
    return Speed(
        peer="cuBLAS, fp32",
        case=shape_case(size, size, size),
        bytes_moved=lambda case: 12 * case.sizes["m"] * case.sizes["n"],
        flops=lambda case: 2 * case.sizes["m"] * case.sizes["n"] * case.sizes["k"],
        run_peer=library,
        bands=bands,
    )


# Of the two rungs whose blocks compute 128 x 128 elements.
BLOCKS_OF_128 = (
    "Blocks of 256 threads, one dimension; block (x, y) computes the 128 x 128 "
    "elements of c from row 128 * y and column 128 * x on.",
    "n and k are multiples of 4; m is any number.",
)
