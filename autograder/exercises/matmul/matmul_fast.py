"""The ladder: as close to cuBLAS as may be."""

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
    timed,
)
from autograder.ideals import barriers, moves

MATMUL_FAST = Exercise(
    id="matmul_fast",
    title="As fast as you can",
    kind="ladder",
    points=15,
    language="cuda",
    entry="kernel",
    name="matmul_fast",
    source="solutions/matmul/double_buffered.cu",
    goal="Load the next tiles while these are multiplied, behind one barrier a tile: "
    "as close to cuBLAS as you can.",
    requirements=(
        *BLOCKS_OF_128,
        "A quarter of a float out of shared memory for each product, 1/64 out of "
        "global memory, both 16 bytes at a time.",
        "Stores into shared memory of 128 bytes a wavefront.",
        "One barrier for each 8 steps of k or more.",
    ),
    problem=problem_with(tiles(128, 128, 256)),
    reference=reference,
    cases=FAST_CASES,
    tolerance=TOLERANCE,
    hints=(
        "Begin with your kernel of rung 6. Give both tiles a first index, [2], and "
        "split what brings them: load the next ones into registers, and store those "
        "later. Where must each of the two stand, so that the products lie between?",
        "load the first tiles, store them into pair 0; then for each tile: load the "
        "next, barrier, 8 steps from pair `now`, now = 1 - now, store into pair now. "
        "What is loaded behind the last tile is zeros, which nobody reads.",
        "float4 a_next, b_next stand outside of the loop. load(0); store(0); then for "
        "(int first = 8; first < k + 8; first += 8) { load(first); __syncthreads(); "
        "...; now = 1 - now; store(now); }, where load and store are lambdas, auto "
        "load = [&](int first) { ... };, or written out twice.",
    ),
    onward="128 x 256 elements a block, 16 x 8 sums a thread: more sums for each "
    "load, and nearly all registers; asynchronous copies, and a third pair of tiles.",
    counts=(
        *moves({"a": 256 / 128}, width=16),
        # The order of a warp's lanes is a matter of a half.
        Count("wavefronts", "shared", "load", ideal=8192, times=1.5),
        Count("requests", "shared", "load", ideal=4096, times=1.15),
        # Eight pairs of tiles, and one or two of zeros behind. Turned stores meet in
        # banks where rows have no 4 floats behind them.
        Count("wavefronts", "shared", "store", ideal=1152, times=1.15),
        barriers(8, 9),
    ),
    structure=(WIDE_LOADS,),
    speed=timed(4096, {"bronze": 0.45, "silver": 0.65, "gold": 0.80}),
    shares=SHARES,
)
