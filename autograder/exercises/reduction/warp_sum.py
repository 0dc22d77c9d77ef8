"""A warp's sum in five shuffles."""

from __future__ import annotations

from autograder.exercise import Count, Exercise, Structure
from autograder.exercises.reduction.shared import (
    CASES,
    SHARES,
    by_folds,
    problem_by,
    tolerance_by,
)
from autograder.ideals import barriers, moves, needed, shared

WARP_SUM = Exercise(
    id="warp_sum",
    title="A warp's sum in five shuffles",
    kind="warm-up",
    points=10,
    language="cuda",
    entry="kernel",
    name="warp_sum",
    source="solutions/reduction/shuffle.cu",
    goal="Add the 32 values of each warp up, from register to register.",
    requirements=(
        "`out[w]` is the sum over warp w of the grid; a block of 256 threads has "
        "eight warps.",
        "By shuffles, five a warp: no shared memory, no barrier, no atomics.",
        "Right for every n.",
    ),
    problem=problem_by(32),
    reference=by_folds(32),
    cases=CASES,
    tolerance=tolerance_by(32),
    hints=(
        "__shfl_down_sync(mask, value, offset) hands each lane the value of the lane "
        "`offset` further on. Which offset brings the upper half to the lower?",
        "Offsets 16, 8, 4, 2, 1: the tree of before, with registers for places. All "
        "32 lanes take part each time; after the last one lane 0 has it all.",
        "for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync("
        "0xffffffff, sum, offset);  then lane 0, threadIdx.x % 32 == 0, writes "
        "out[i / 32].",
    ),
    onward="Draw your tree with shuffle_steps, by __shfl_down_sync and by "
    "__shfl_xor_sync: which lanes have the whole sum at the end?",
    counts=(
        *moves(),
        *shared(0, 0),
        barriers(0),
        # Five a warp by hand, or one reduce of a group; of a block's eight warps.
        needed("shuffles", 8),
        Count(
            "shuffles",
            ideal=40,
            times=1,
            advice="Five a warp do: each hands on what a lane has added up so far.",
        ),
    ),
    structure=(
        Structure(
            holds=("SHFL",),
            lacks=("LDS", "STS", "ATOMS", "RED", "ATOM", "BAR"),
            message="The values are right. Wanted were shuffles alone: the machine "
            "code must hold SHFL, and no shared memory, barrier or atomic.",
        ),
    ),
    shares=SHARES,
)
