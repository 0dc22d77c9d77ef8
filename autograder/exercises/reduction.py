"""Chapter 4: trees, shuffles, rows and columns, and a sum in one pass."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Exercise,
    NearMiss,
    Outputs,
    Structure,
)
from autograder.exercises._reduction import (
    SHARES,
    STEM,
    THREADS,
    by_folds,
    hidden_lengths,
    problem_by,
    tail_mistakes,
    tolerance_by,
    vector_case,
)
from autograder.exercises._reduction_matrix import MEAN_ABS, SUM_SQUARED
from autograder.exercises._reduction_pass import SUM_ALL
from autograder.totals import barriers, moves, needed, shared

# Whole blocks first: there the counts are round.
LENGTHS = (1024, 1000, 257, 255, 33, 31, 1, 0)
CASES = (
    *(vector_case(n) for n in LENGTHS),
    vector_case(2000, "shifted"),
    vector_case(700, "special"),
)

# --- block_sum --------------------------------------------------------------------


def _first_block(arguments: Arguments) -> Outputs:
    sums = by_folds(THREADS)(arguments)["out"]
    return {"out": sums[:1].expand_as(sums)}


BLOCK_SUM = Exercise(
    id="block_sum",
    stem=STEM,
    title="A tree with its lanes side by side",
    kind="core",
    points=15,
    language="cuda",
    entry="kernel",
    name="block_sum",
    source="solutions/reduction/sequential.cu",
    goal="Add the elements of each block up in shared memory, so that the threads "
    "that still work are always neighbours.",
    requirements=(
        "Blocks of 256 threads; `out[blockIdx.x]` is the sum of the block's elements, "
        "0 if it has none.",
        "Right for every n; no atomics.",
        "On average at least 16 active lanes in each request to shared memory, one "
        "wavefront each, and at most nine barriers.",
    ),
    problem=problem_by(THREADS),
    reference=by_folds(THREADS),
    cases=CASES,
    hidden=hidden_lengths,
    tolerance=tolerance_by(THREADS),
    near_misses=(
        NearMiss(
            "block index forgotten",
            _first_block,
            "Every block has the sum of the first 256 elements: thread t of block b "
            "reads element b * 256 + t.",
        ),
        NearMiss(
            "one step short",
            by_folds(THREADS, lambda parts: parts[:, ::2].sum(1)),
            "Only the elements at even places are in the sum: the last step, in which "
            "thread 0 adds part[1], is missing. Go on while stride > 0.",
        ),
        NearMiss(
            "one step late",
            by_folds(THREADS, lambda parts: parts[:, :128].sum(1)),
            "Only the first 128 elements of each block are in the sum: the first "
            "stride is half the block, 128.",
        ),
        NearMiss(
            "no tree",
            by_folds(THREADS, lambda parts: parts[:, 0]),
            "out holds the first element of each block: nothing was added to part[0].",
        ),
        NearMiss(
            "one stride",
            by_folds(THREADS, lambda parts: parts[:, 0] + parts[:, 128]),
            "Each sum has two elements, 0 and 128: the step must be repeated, with "
            "half the stride each time.",
        ),
        NearMiss(
            "replaced",
            by_folds(THREADS, lambda parts: parts[:, 255]),
            "out holds the last element of each block. Does each step replace part[t]? "
            "Add to it: part[t] += … Or does thread 255 store? Thread 0 has the sum, "
            "in part[0].",
        ),
        *tail_mistakes(THREADS),
    ),
    hints=(
        "With 256 values left, let 128 threads work: which 128, so that four warps "
        "work in full and four have nothing to do at all?",
        "Thread t adds part[t + stride] to part[t], for t < stride. The stride is 128 "
        "first, then half of it, down to 1. Between two steps all must have finished.",
        "part[t] = i < n ? x[i] : 0.0f;  barrier;  for (int stride = blockDim.x / 2; "
        "stride > 0; stride /= 2) { if (t < stride) part[t] += part[t + stride]; "
        "barrier }  and thread 0 writes part[0].",
    ),
    onward="The last five steps are one warp's own. Do they need a barrier?",
    counts=(
        *moves(),
        # Four blocks' trees, 8 + 4 + 2 + 6 * 1 requests of two operands each: shuffles
        # need fewer, scattered threads nearly four times as many.
        *shared(80, 100),
        barriers(9),
    ),
    structure=(
        Structure(
            lacks=("RED", "ATOM"),
            message="The values are right, and made by atomics: add in the tree "
            "instead, each thread its own part.",
        ),
    ),
    shares=SHARES,
)

# --- warp_sum ---------------------------------------------------------------------


def _lane_named_offset(parts: torch.Tensor) -> torch.Tensor:
    for offset in (16, 8, 4, 2, 1):
        parts = parts + parts[:, offset : offset + 1]
    return parts[:, 0]


def _one_warp_a_block(arguments: Arguments) -> Outputs:
    sums = by_folds(32)(arguments)["out"]
    first = torch.arange(len(sums), device=sums.device) % 8 == 0
    return {"out": torch.where(first, sums, torch.nan)}


def _nothing_past_the_end(arguments: Arguments) -> Outputs:
    sums = by_folds(32)(arguments)["out"]
    begins = 32 * torch.arange(len(sums), device=sums.device)
    inside = begins < tensor(arguments, "x").numel()
    return {"out": torch.where(inside, sums, torch.nan)}


WARP_SUM = Exercise(
    id="warp_sum",
    stem=STEM,
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
        "By shuffles: no shared memory, no barrier, no atomics.",
        "Right for every n.",
    ),
    problem=problem_by(32),
    reference=by_folds(32),
    cases=CASES,
    hidden=hidden_lengths,
    tolerance=tolerance_by(32),
    near_misses=(
        NearMiss(
            "one shuffle",
            by_folds(32, lambda parts: parts[:, 0] + parts[:, 16]),
            "Each sum has two elements, lanes 0 and 16: shuffle again, with half the "
            "offset each time, down to 1.",
        ),
        NearMiss(
            "from eight",
            by_folds(32, lambda parts: parts[:, :16].sum(1)),
            "Only lanes 0 to 15 are in the sum: the first offset is 16, half a warp.",
        ),
        NearMiss(
            "not down to one",
            by_folds(32, lambda parts: parts[:, ::2].sum(1)),
            "Only the even lanes are in the sum: the last offset is 1.",
        ),
        NearMiss(
            "no shuffle",
            by_folds(32, lambda parts: parts[:, 0]),
            "out holds lane 0's own value: nothing was added to it.",
        ),
        NearMiss(
            "replaced",
            by_folds(32, lambda parts: parts[:, 31]),
            "out holds lane 31's value: each shuffle replaces what the lane has. Add "
            "what it returns: sum += …",
        ),
        NearMiss(
            "from thirty-two",
            by_folds(32, lambda parts: 2 * parts.sum(1)),
            "Each sum is twice what it should be: 32 lanes further on there is nobody, "
            "and a lane gets its own value once more. The first offset is 16.",
        ),
        NearMiss(
            "from half a block",
            by_folds(32, lambda parts: 8 * parts.sum(1)),
            "Each sum is eight times what it should be: 128, 64 and 32 lanes further "
            "on there is nobody, and a lane gets its own value once more. The first "
            "offset is 16, half a warp.",
        ),
        NearMiss(
            "lane named offset",
            by_folds(32, _lane_named_offset),
            "Every lane asks the lane whose number is `offset`: that is __shfl_sync. "
            "The lane `offset` further on is __shfl_down_sync's.",
        ),
        NearMiss(
            "what it came with",
            by_folds(32, lambda parts: parts[:, [0, 16, 8, 4, 2, 1]].sum(1)),
            "Only lanes 0, 1, 2, 4, 8 and 16 are in the sum: each step hands on the "
            "element that a lane came with. Hand on what it has added up so far.",
        ),
        NearMiss(
            "up for down",
            by_folds(32, lambda parts: 32 * parts[:, 0]),
            "out holds 32 times lane 0's value: no lane stands before lane 0, and from "
            "__shfl_up_sync it gets its own. Take __shfl_down_sync.",
        ),
        NearMiss(
            "last lane stores",
            by_folds(32, lambda parts: 32 * parts[:, 31]),
            "out holds 32 times lane 31's value: no lane stands behind it, and it gets "
            "its own each time. Lane 0 has the sum: threadIdx.x % 32 == 0.",
        ),
        NearMiss(
            "one warp a block",
            _one_warp_a_block,
            "Only the first warp of each block has stored its sum: every warp has a "
            "lane 0, the thread with threadIdx.x % 32 == 0.",
        ),
        NearMiss(
            "nothing past the end",
            _nothing_past_the_end,
            "Warps that begin past the end have stored nothing: their sum is 0, and it "
            "is wanted. The guard belongs to the load alone.",
        ),
    ),
    hints=(
        "__shfl_down_sync(mask, value, offset) hands each lane the value of the lane "
        "`offset` further on. Which offset brings the upper half to the lower?",
        "Offsets 16, 8, 4, 2, 1: the tree of before, with registers for places. All "
        "32 lanes take part each time; after the last one lane 0 has it all.",
        "for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync("
        "0xffffffff, sum, offset);  then lane 0, threadIdx.x % 32 == 0, writes "
        "out[i / 32].",
    ),
    onward="__shfl_xor_sync gives every lane the sum. Draw it with shuffle_steps.",
    counts=(
        *moves(),
        *shared(0, 0),
        barriers(0),
        # Five a warp by hand, or one reduce of a group; of a block's eight warps.
        needed("shuffles", 8),
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

# --- lost_lanes (detective) -------------------------------------------------------


def _whole_warps(parts: torch.Tensor) -> torch.Tensor:
    # Zeros are the padding: no drawn value is one.
    warps = parts.view(len(parts), 8, 32)
    full = (warps != 0).all(2, keepdim=True)
    return torch.where(full, warps, 0.0).sum((1, 2))


LOST_LANES = Exercise(
    id="lost_lanes",
    stem=STEM,
    title="The sum that loses its last lanes",
    kind="detective",
    points=15,
    language="cuda",
    entry="kernel",
    name="lost_lanes",
    source="autograder/answers/reduction/lost_lanes.cu",
    goal="Mend a sum a block that is right for every n that its author tried: "
    "multiples of 256.",
    requirements=(
        "`out[blockIdx.x]` is the sum of the block's elements, for every n.",
        "The shuffles and the barrier stay; every lane that a mask names comes.",
    ),
    problem=problem_by(THREADS),
    reference=by_folds(THREADS),
    cases=CASES,
    hidden=hidden_lengths,
    tolerance=tolerance_by(THREADS),
    near_misses=(
        NearMiss(
            "whole warps only",
            by_folds(THREADS, _whole_warps),
            "The elements of the last warp, the one that is not full, are missing: its "
            "lanes with an element must be added, and those without bring a zero.",
        ),
        NearMiss(
            "first warp only",
            by_folds(THREADS, lambda parts: parts[:, :32].sum(1)),
            "Only the first warp of each block is in the sum.",
        ),
        *tail_mistakes(THREADS),
    ),
    hints=(
        "Trace it with n = 1000. What does it say of line 11, and which lanes does it "
        "name?",
        "A shuffle with the mask 0xffffffff waits for all 32 lanes. Which of them have "
        "gone home, and what could they have brought instead?",
        "Nobody returns: float sum = i < n ? x[i] : 0.0f;  a lane past the end adds "
        "nothing, and it is there.",
    ),
    onward="Give the broken kernel __activemask() for a mask: which of its two faults "
    "is left?",
    counts=(*moves(), barriers(1)),
    structure=(
        Structure(
            holds=("SHFL",),
            message="The values are right, and the shuffles are gone: keep them, and "
            "mend what they are given.",
        ),
    ),
    shares=SHARES,
)

EXERCISES = (BLOCK_SUM, WARP_SUM, SUM_SQUARED, MEAN_ABS, LOST_LANES, SUM_ALL)
