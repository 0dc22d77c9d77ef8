"""The detective: a sum whose last lanes have gone home."""

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

LOST_LANES = Exercise(
    id="lost_lanes",
    title="The sum that loses its last lanes",
    kind="detective",
    points=15,
    language="cuda",
    entry="kernel",
    name="lost_lanes",
    source="autograder/exercises/reduction/lost_lanes.cu",
    goal="Mend a sum a block that is right for every n that its author tried: "
    "multiples of 256.",
    requirements=(
        "`out[blockIdx.x]` is the sum of the block's elements, for every n.",
        "The shuffles and the barrier stay; every lane that a mask names comes.",
    ),
    problem=problem_by(THREADS),
    reference=by_folds(THREADS),
    cases=CASES,
    tolerance=tolerance_by(THREADS),
    hints=(
        "Trace it with n = 1000. What does it say of line 11, and which lanes does it "
        "name?",
        "A shuffle with the mask 0xffffffff waits for all 32 lanes. Which of them have "
        "gone home, and what could they have brought instead?",
        "Nobody returns: float total = i < n ? x[i] : 0.0f;  a lane past the end adds "
        "nothing, and it is there.",
    ),
    onward="Give the broken kernel __activemask() for a mask: which of its two faults "
    "is left?",
    # Eight sums a block, which one thread reads, or each warp at once.
    counts=(*moves(), *shared(32, 32), barriers(1)),
    structure=(
        Structure(
            holds=("SHFL",),
            message="The values are right, and the shuffles are gone: keep them, and "
            "mend what they are given.",
        ),
    ),
    shares=SHARES,
)
