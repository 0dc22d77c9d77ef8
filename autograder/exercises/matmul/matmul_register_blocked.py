"""Sixteen sums a thread."""

from __future__ import annotations

from autograder.exercise import Exercise
from autograder.exercises.matmul.shared import (
    CASES,
    SHARES,
    TOLERANCE,
    problem_with,
    reference,
    shape_case,
    tiles,
    timed,
)
from autograder.ideals import barriers, moves, shared

# Two blocks down: the other cases have no more than one.
_BLOCKED_CASES = (shape_case(128, 64, 96), *CASES[1:])

MATMUL_REGISTER_BLOCKED = Exercise(
    id="matmul_register_blocked",
    title="Sixteen sums a thread",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="matmul_register_blocked",
    source="solutions/matmul/register_blocked.cu",
    goal="Keep 4 x 4 sums in each thread's registers, so that eight values out of "
    "shared memory feed sixteen products.",
    requirements=(
        "Blocks of 16 x 16 threads compute 64 x 64 elements of c; thread (x, y) has "
        "rows y, y + 16, y + 32, y + 48 of them, and columns likewise.",
        "Half a float loaded from shared memory for each product, one wavefront a "
        "request.",
        "Right for every m, n and k.",
    ),
    problem=problem_with(tiles(64, 64, 16, 16)),
    reference=reference,
    cases=_BLOCKED_CASES,
    tolerance=TOLERANCE,
    hints=(
        "For one step i a thread needs one element of a for each of its four rows, "
        "and one of b for each of its four columns. How many loads is that, and how "
        "many products?",
        "Load the eight values into float down[4], across[4] first; then two loops "
        "over r and s add down[r] * across[s] to sums[r][s].",
        "down[r] = a_tile[y + 16 * r][i];  across[r] = b_tile[i][x + 16 * r];  and "
        "at the end sums[r][s] goes to row top + y + 16 * r, column left + x + 16 * s.",
    ),
    onward="Make it 8 x 8 with tiles of 128, and predict the loads for a product.",
    counts=(
        *moves({"b": 128 / 64}),
        # Four numbers of each for sixteen products.
        *shared(768, 2 / 4 * 128 * 64 * 96 / 32),
        barriers(12, 13),
    ),
    speed=timed(4096, {"bronze": 0.18, "silver": 0.30, "gold": 0.40}),
    shares=SHARES,
)
