"""The ladder: as close to cuBLAS as may be."""

from __future__ import annotations

from autograder.exercise import Count, Exercise, Structure
from autograder.exercises.matmul.shared import (
    CASES,
    SHARES,
    TOLERANCE,
    in_fours,
    problem_with,
    reference,
    shape_case,
    tiles,
    timed,
)
from autograder.ideals import barriers, moves

_FAST_CASES = in_fours(
    shape_case(128, 256, 64),
    shape_case(132, 260, 36),
    *CASES[2:6],
    shape_case(40, 132, 20, "special"),
    # Three blocks down: a stride of 127 rows leaves the last one out.
    shape_case(383, 8, 4),
)

MATMUL_FAST = Exercise(
    id="matmul_fast",
    title="As fast as you can",
    kind="ladder",
    points=30,
    language="cuda",
    entry="kernel",
    name="matmul_fast",
    source="solutions/matmul/double_buffered.cu",
    goal="Multiply with 8 x 8 sums a thread, 16 bytes an instruction and the next "
    "tiles on their way: as close to cuBLAS as you can.",
    requirements=(
        "Blocks of 256 threads, one dimension; block (x, y) computes the 128 x 128 "
        "elements of c from row 128 * y and column 128 * x on.",
        "n and k are multiples of 4; m is any number.",
        "A quarter of a float out of shared memory for each product, 1/64 out of "
        "global memory, both 16 bytes at a time.",
        "One barrier for each 8 steps of k or more.",
    ),
    problem=problem_with(tiles(128, 128, 256)),
    reference=reference,
    cases=_FAST_CASES,
    tolerance=TOLERANCE,
    hints=(
        "Rung 4 with 128 x 128 elements a block and 8 x 8 a thread loads a quarter "
        "of a float for each product. To load four at a time, a step's values must "
        "lie side by side: turn a's tile when you store it, a_tile[i][row].",
        "Two pairs of tiles: load the next ones into registers, use the present "
        "ones, then store into the other pair; one barrier. Let a warp cover 64 x 32 "
        "elements, lanes 8 x 4, each with 2 x 2 groups of 4 x 4.",
        "float4 a_next, b_next: load(0); store(0); then for each tile: load the next, "
        "barrier, 8 steps from pair `now`, now = 1 - now, store(now). Rows of 132 "
        "floats in a's tile keep the turned stores apart.",
    ),
    onward="128 x 256 elements a block, 16 x 8 sums a thread: more sums for each "
    "load, and nearly all registers; asynchronous copies, and a third pair of tiles.",
    counts=(
        *moves({"a": 256 / 128}, width=16),
        # The order of a warp's lanes is a matter of a half.
        Count("wavefronts", "shared", "load", ideal=8192, times=1.5),
        barriers(8, 9),
    ),
    structure=(
        Structure(
            holds=("LDG.E.128", "LDS.128", "FFMA"),
            lacks=("HMMA", "STL"),
            message="The values are right, and the machine code does not do what this "
            "rung is about: loads of 128 bits from global and from shared memory "
            "(LDG.E.128, LDS.128), products in fp32 (FFMA, no HMMA) and no register "
            "spilled to memory (STL).",
        ),
    ),
    speed=timed(4096, {"bronze": 0.45, "silver": 0.65, "gold": 0.80}),
    shares=SHARES,
)
