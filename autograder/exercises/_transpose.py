"""What the exercises of chapter 2 share: matrices, launches, and their mistakes.

Nothing is computed, so nothing is rounded: an answer is right to the last bit, and
the tolerance's factor is 0.
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
    Speed,
    Tolerance,
)
from autograder.totals import once_through_shared

STEM = "transpose"
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


def hidden(generator: torch.Generator) -> Iterator[Case]:
    """Draw awkward shapes: inside a tile, around several, thin ones."""

    def drawn(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    yield matrix_case(drawn(2, 31), drawn(2, 31))
    yield matrix_case(32 * drawn(1, 4) + drawn(1, 4), 32 * drawn(1, 4) - drawn(1, 4))
    yield matrix_case(32 * drawn(1, 3), 32 * drawn(3, 6))
    yield matrix_case(drawn(2, 8), drawn(200, 400), "special")


def hidden_in_fours(generator: torch.Generator) -> Iterator[Case]:
    """Draw shapes as ``hidden`` does, each side a multiple of 4."""
    for case in hidden(generator):
        rows, columns = (4 * -(-case.sizes[s] // 4) for s in ("rows", "columns"))
        yield matrix_case(rows, columns, case.regime)


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


def gathered(
    source: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
) -> Callable[[Arguments], Outputs]:
    """Return the mistake that puts x[source(r, c)] at out[r, c].

    Args:
        source: row and column of x from row and column of out; where x has no such
            element, NaN stands for *never written*.
    """

    def output(arguments: Arguments) -> Outputs:
        x = tensor(arguments, "x")
        rows, columns = x.shape
        r = torch.arange(columns)[:, None]
        c = torch.arange(rows)[None, :]
        row, column = (index.expand(columns, rows) for index in source(r, c))
        inside = (row < rows) & (column < columns)
        if not x.numel():
            return {"out": x.T.contiguous()}
        found = x[row.clamp(max=rows - 1), column.clamp(max=columns - 1)]
        return {"out": torch.where(inside, found, torch.nan)}

    return output


def _same_order(arguments: Arguments) -> Outputs:
    x = tensor(arguments, "x")
    return {"out": x.reshape(x.shape[1], x.shape[0])}


def _only_rows(keep: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Outputs]:
    """Return the mistake that leaves out rows of the result."""

    def output(arguments: Arguments) -> Outputs:
        right = reference(arguments)["out"].float()
        written = keep(torch.arange(right.shape[0]))[:, None]
        return {"out": torch.where(written, right, torch.nan)}

    return output


MISTAKES = (
    NearMiss(
        "copied",
        _same_order,
        "out holds x in the same order: nothing is transposed. Element (r, c) of x "
        "is element (c, r) of out, at c * rows + r.",
    ),
    NearMiss(
        "tile not turned",
        gathered(lambda r, c: (c // 32 * 32 + r % 32, r // 32 * 32 + c % 32)),
        "Every tile is in its right place, and inside it nothing is turned: where a "
        "thread wrote tile[y][x], it must read tile[x][y].",
    ),
    NearMiss(
        "blocks not swapped",
        gathered(lambda r, c: (r // 32 * 32 + c % 32, c // 32 * 32 + r % 32)),
        "Inside each tile everything is turned, and the tiles themselves stand where "
        "they stood in x: for the store swap blockIdx.x and blockIdx.y.",
    ),
    NearMiss(
        "first rows only",
        _only_rows(lambda r: r % 32 < 8),
        "Of each 32 rows of out only the first 8 are written: a block has 8 rows of "
        "threads, so each thread stores four elements, 8 rows apart.",
    ),
)


def timed(bands: dict[str, float]) -> Speed:
    """Return the speed gate of a transpose of 512 MB: each byte read and written."""
    return Speed(
        peer="copy bandwidth",
        case=matrix_case(16384, 8192),
        bytes_moved=lambda case: 8 * case.sizes["rows"] * case.sizes["columns"],
        bands=bands,
    )
