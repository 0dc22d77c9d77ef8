"""The same sums, coalesced."""

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
from autograder.ideals import moves

MATMUL_COALESCED = Exercise(
    id="matmul_coalesced",
    title="The same sums, coalesced",
    kind="core",
    points=10,
    language="cuda",
    entry="kernel",
    name="matmul_coalesced",
    source="solutions/matmul/coalesced.cu",
    goal="Compute the same product with loads and stores that a warp makes side by "
    "side.",
    requirements=(
        "Blocks of 32 x 8 threads; `blockIdx.x` counts blocks along a row of c, "
        "`blockIdx.y` down a column.",
        "At most 2.6 sectors per request for the loads, one of a and four of b, and "
        "4.2 for the stores.",
        "Right for every m, n and k.",
    ),
    problem=problem_with(tiles(32, 8, 32, 8)),
    reference=reference,
    cases=CASES,
    tolerance=TOLERANCE,
    hints=(
        "`threadIdx.x` grows from lane to lane. Which of row and column should grow "
        "with it, so that 32 lanes read 32 neighbours of b?",
        "Along a warp the row stays and the column grows: then all lanes read the "
        "same element of a, which is one sector, and neighbours of b and c.",
        "int row = blockIdx.y * blockDim.y + threadIdx.y;  int column = blockIdx.x * "
        "blockDim.x + threadIdx.x;  and everything else as before.",
    ),
    onward="Both kernels load two floats for each product. What could be done with "
    "fewer?",
    counts=(
        # A warp reads 32 columns of b for each row of c, and of a one number at a time:
        # a sector, as good as eight.
        moves({"a": 8 * 96 / 32, "b": 64})
    ),
    shares=SHARES,
)
