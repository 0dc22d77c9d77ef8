"""What the exercises of chapter 2 share: matrices, launches, timing.

Nothing is computed, so nothing is rounded: an answer is right to the last bit, and
the tolerance's factor is 0.
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
    Tolerance,
)
from autograder.ideals import once_through_shared

THREADS = 256  # of a block that goes over a vector
SIDE = 32  # of the tile in shared memory
EXACT = Tolerance(factor=0.0)

_REGIMES = {"distinct": "normal values", "special": "NaN and Inf among them"}

# What an answer moves is what is learned here: right values alone are the naive kernel.
SHARES = {"correct": 0.3, "counts": 0.5, "speed": 0.2}

# Of the first case's 64 x 96 numbers each goes through the tile once.
WITHOUT_CONFLICTS = once_through_shared(64 * 96 * 4)


def matrix_case(rows: int, columns: int, regime: str = "distinct") -> Case:
    """Return a case of one shape, named as the learner reads it."""
    name = f"{rows:,} x {columns:,}, {_REGIMES[regime]}"
    return Case(name, {"rows": rows, "columns": columns}, regime)


# Whole tiles first, not square: there the counts are round, and every known mistake
# shows a face of its own.
CASES = (
    matrix_case(64, 96),
    matrix_case(96, 64),
    matrix_case(33, 65),
    matrix_case(31, 1),
    matrix_case(1, 257),
    matrix_case(0, 5),
    matrix_case(100, 36, "special"),
)


def launch(
    rows: int, columns: int, block: tuple[int, int], *, down: bool = False
) -> Launch:
    """Return a block for each tile of 32 x 32, one at least.

    Args:
        rows: of x.
        columns: of x.
        block: threads of a block.
        down: whether ``blockIdx.x`` counts tiles down a column of x.
    """
    grid = (max(1, -(-columns // SIDE)), max(1, -(-rows // SIDE)))
    return Launch(grid[::-1] if down else grid, block)


def draw_values(count: int, regime: str, generator: torch.Generator) -> torch.Tensor:
    """Draw floats that differ at every place, some of them NaN and Inf."""
    x = torch.randn(count, generator=generator)
    if regime == "special":
        for start, value in enumerate((torch.nan, torch.inf, -torch.inf, -0.0)):
            x[start::11] = value
    return x


def problem_with(
    block: tuple[int, int], *, down: bool = False
) -> Callable[[Case, torch.Generator], Problem]:
    """Return the function that draws a matrix and launches with such blocks."""

    def problem(case: Case, generator: torch.Generator) -> Problem:
        rows, columns = case.sizes["rows"], case.sizes["columns"]
        x = draw_values(rows * columns, case.regime, generator)
        return Problem(
            {
                "x": x.view(rows, columns),
                "out": None,
                "rows": rows,
                "columns": columns,
            },
            {"out": Output((columns, rows), torch.float32)},
            launch(rows, columns, block, down=down),
        )

    return problem


def reference(arguments: Arguments) -> Outputs:
    """Return the transpose, in memory of its own."""
    return {"out": tensor(arguments, "x").T.contiguous().double()}


def timed(bands: dict[str, float]) -> Speed:
    """Return the speed gate of a transpose of 512 MB: each byte read and written."""
    return Speed(
        peer="copy bandwidth",
        case=matrix_case(16384, 8192),
        bytes_moved=lambda case: 8 * case.sizes["rows"] * case.sizes["columns"],
        bands=bands,
    )
