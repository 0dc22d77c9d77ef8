"""A block's sum by a tree in shared memory, its lanes side by side."""

from __future__ import annotations

from autograder.exercise import Exercise, Structure
from autograder.exercises.reduction.shared import (
    CASES,
    SHARES,
    THREADS,
    by_folds,
    problem_by,
    tolerance_by,
)
from autograder.ideals import barriers, moves, shared

BLOCK_SUM = Exercise(
    id="block_sum",
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
    tolerance=tolerance_by(THREADS),
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
