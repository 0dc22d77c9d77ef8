"""The detective: a pipeline that multiplies what has not come yet."""

from __future__ import annotations

from autograder.exercise import Exercise
from autograder.exercises.tensor_cores.shared import (
    ASYNCHRONOUS,
    STAGED_BYTES,
    STAGED_CASES,
    STAGED_COUNTS,
    TOLERANCE,
    problem_with,
    reference,
)

STALE_STAGE = Exercise(
    id="stale_stage",
    title="The pipeline that reads too early",
    kind="detective",
    points=20,
    language="cuda",
    entry="kernel",
    name="stale_stage",
    source="autograder/exercises/tensor_cores/stale_stage.cu",
    goal="Mend a pipeline that passed every test on its author's GPU.",
    requirements=(
        "The launch and the three stages stay as they are.",
        "Right for every number of tiles; one barrier for each.",
        "Copies stay asynchronous, two tiles ahead.",
    ),
    problem=problem_with((128, 128), 128, STAGED_BYTES),
    reference=reference,
    cases=STAGED_CASES,
    tolerance=TOLERANCE,
    hints=(
        "Trace it: which problem does the report name, in which line? And for which "
        "numbers of tiles does it appear?",
        "cp_async_wait<1> leaves the newest group open, whichever that is. Write down, "
        "for k of three tiles, which groups have been committed when round 2 waits.",
        "In the last rounds nothing is fetched and so nothing committed, and the "
        "newest group is the one that is needed. Commit in every round, an empty "
        "group too: move kw::cp_async_commit() out of the if, in both loops.",
    ),
    onward="Why did it pass on a GPU? What would make it fail there?",
    counts=STAGED_COUNTS,
    structure=ASYNCHRONOUS,
    # Its values come right by chance on a GPU; there is nothing to gain in time.
    shares={"correct": 0.6, "counts": 0.4, "speed": 0.0},
)
