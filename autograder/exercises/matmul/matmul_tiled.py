"""Tiles in shared memory."""

from __future__ import annotations

from autograder.exercise import Exercise
from autograder.exercises.matmul.shared import (
    CASES,
    SHARES,
    TOLERANCE,
    problem_with,
    reference,
    tiles,
)
from autograder.ideals import barriers, moves, shared

MATMUL_TILED = Exercise(
    id="matmul_tiled",
    title="Tiles in shared memory",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="matmul_tiled",
    source="solutions/matmul/tiled.cu",
    goal="Bring tiles of a and b into shared memory, so that each element is loaded "
    "once for 32 products.",
    requirements=(
        "Blocks of 32 x 32 threads; block (x, y) computes the 32 x 32 elements of c "
        "from row 32 * y and column 32 * x on.",
        "One float loaded from global memory for 16 products: 1/32 of a, 1/32 of b "
        "each.",
        "Two barriers for each pair of tiles, and no more.",
        "Right for every m, n and k.",
    ),
    problem=problem_with(tiles(32, 32, 32, 32)),
    reference=reference,
    cases=CASES,
    tolerance=TOLERANCE,
    hints=(
        "All 1,024 threads of a block need the same 32 rows of a and 32 columns of b. "
        "They walk along k together, 32 steps at a time: a 32 x 32 tile of each.",
        "For each pair of tiles: every thread brings one element of a and one of b, "
        "zeros where there is none; barrier; 32 products each; barrier, before "
        "anybody overwrites a tile.",
        "a_tile[y][x] = row < m && first + x < k ? a[row * k + first + x] : 0.0f; "
        "b_tile[y][x] = first + y < k && column < n ? b[(first + y) * n + column] : "
        "0.0f;  sum += a_tile[y][i] * b_tile[i][x];",
    ),
    onward="Count what the inner loop does: two loads from shared memory for one "
    "product.",
    counts=(
        *moves({"a": 96 / 32, "b": 64 / 32}),
        # 32 x 32 products a warp and step of k, of a number of a and a row of b each.
        *shared(1536, 2 * 64 * 96 * 128 / 32),
        barriers(8, 9),
    ),
    shares=SHARES,
)
