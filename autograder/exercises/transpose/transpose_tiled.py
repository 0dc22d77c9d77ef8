"""Transpose through a tile: rows go in, columns come out."""

from __future__ import annotations

from autograder.exercise import Exercise
from autograder.exercises.transpose.shared import (
    CASES,
    EXACT,
    SHARES,
    problem_with,
    reference,
    timed,
)
from autograder.ideals import barriers, moves

TRANSPOSE_TILED = Exercise(
    id="transpose_tiled",
    title="Transpose through a tile",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="transpose_tiled",
    source="solutions/transpose/tiled.cu",
    goal="Transpose a `rows` x `columns` matrix so that both the loads and the stores "
    "are coalesced.",
    requirements=(
        "A block of 32 x 8 threads moves a tile of 32 x 32 elements; "
        "`blockIdx.x` counts tiles along a row of `x`, `blockIdx.y` down a column.",
        "Right for every shape; no thread reads or writes outside.",
        "On whole tiles each request touches four sectors, loads and stores.",
    ),
    problem=problem_with((32, 8)),
    reference=reference,
    cases=CASES,
    tolerance=EXACT,
    hints=(
        "A warp should read 32 neighbours of `x` and later write 32 neighbours of "
        "`out`. These are not the same 32 elements: that is what the tile is for.",
        "Three steps: store `x`'s rows into `tile[y][x]`; wait until all threads "
        "have; write rows of `out` from columns of the tile. The tile lands at "
        "block (`blockIdx.y`, `blockIdx.x`) of `out`, whose rows have `rows` "
        "elements.",
        "For the store: `int column = blockIdx.y * 32 + threadIdx.x;` `int row = "
        "blockIdx.x * 32 + threadIdx.y;` and for `k` = 0, 8, 16, 24, if `row + k < "
        "columns && column < rows`: `out[(row + k) * rows + column] = "
        "tile[threadIdx.x][threadIdx.y + k]`.",
    ),
    onward="Take the barrier out and look at what the trace says of it.",
    counts=(*moves(), barriers(1)),
    # Conflicts in the tile have a ceiling of their own: 0.39 on an H200.
    speed=timed({"bronze": 0.20, "silver": 0.30, "gold": 0.36}),
    shares=SHARES,
)
