"""Sixty-four sums a thread, and an order of lanes that shares what it loads."""

from __future__ import annotations

from autograder.exercise import Count, Exercise
from autograder.exercises.matmul.shared import (
    BLOCKS_OF_128,
    FAST_CASES,
    SHARES,
    TOLERANCE,
    WIDE_LOADS,
    problem_with,
    reference,
    tiles,
)
from autograder.ideals import barriers, moves

MATMUL_WARP_TILES = Exercise(
    id="matmul_warp_tiles",
    title="Where a lane stands",
    kind="core",
    points=15,
    language="cuda",
    entry="kernel",
    name="matmul_warp_tiles",
    source="solutions/matmul/warp_tiles.cu",
    goal="Let each thread keep 8 x 8 sums, in four groups of 4 x 4, and place the "
    "lanes of a warp as in the figure.",
    requirements=(
        *BLOCKS_OF_128,
        "A quarter of a float out of shared memory for each product, 16 bytes at a "
        "time, two wavefronts a load.",
    ),
    problem=problem_with(tiles(128, 128, 256)),
    reference=reference,
    cases=FAST_CASES,
    tolerance=TOLERANCE,
    hints=(
        "Warps first: warp / 4 and warp % 4 say which of the 2 x 4 parts of 64 x 32 a "
        "warp has. Then write the lane's number in five bits, and see in the figure "
        "which of them count rows: going from lane 0 to 1, to 2, to 4, to 8, to 16, "
        "which way does the group move?",
        "Bits 1, 3 and 4 count rows of groups, bits 0 and 2 columns. Bit b of a lane "
        "is lane / (1 << b) % 2, and bits 3 and 4 together are lane / 8.",
        "row = warp / 4 * 64 + 4 * (lane / 2 % 2 + lane / 8 * 2), and column likewise "
        "of warp % 4 * 32 and bits 0 and 2. A thread's values of a step are "
        "a_tile[i][row], four floats, and 32 further on; of b [column] and 16 further "
        "on.",
    ),
    onward="Put the lanes into 8 rows of 4 in the order of their numbers, and look at "
    "the wavefronts again.",
    counts=(
        *moves({"a": 256 / 128}, width=16),
        # Two a load; in the plain order of lanes it is three.
        Count(
            "wavefronts",
            "shared",
            "load",
            ideal=8192,
            times=1.1,
            advice="Which lanes ask for the same 16 bytes? A load is served at two "
            "quarters of a warp at once where lane l and l ^ 1, or l ^ 2, do: place "
            "the lanes as in the figure.",
        ),
        barriers(16, 17),
    ),
    structure=(WIDE_LOADS,),
    shares=SHARES,
)
