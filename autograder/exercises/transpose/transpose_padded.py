"""The tile with a longer row, so that a column of it meets all banks."""

from __future__ import annotations

from autograder.exercise import Exercise
from autograder.exercises.transpose.shared import (
    CASES,
    EXACT,
    SHARES,
    WITHOUT_CONFLICTS,
    problem_with,
    reference,
    timed,
)
from autograder.ideals import moves

TRANSPOSE_PADDED = Exercise(
    id="transpose_padded",
    title="A tile without bank conflicts",
    kind="core",
    points=15,
    language="cuda",
    entry="kernel",
    name="transpose_padded",
    source="solutions/transpose/padded.cu",
    goal="Transpose as before, with one wavefront for each request to shared memory.",
    requirements=(
        "The same launch and the same shapes as for the tile.",
        "On whole tiles each request touches four sectors in global memory.",
        "One wavefront per request in shared memory, loads and stores.",
    ),
    problem=problem_with((32, 8)),
    reference=reference,
    cases=CASES,
    tolerance=EXACT,
    hints=(
        "Element (r, c) of a tile with 32 columns is in bank `(32 * r + c) % 32`. "
        "What does that come to, when the lanes of a warp differ in r?",
        "Only the length of a row matters. Which length makes r, r + 1, r + 2, … "
        "land in different banks?",
        "`__shared__ float tile[32][33];` and everything else as before.",
    ),
    onward="Try 34 and 36 columns, and predict the wavefronts before you trace them.",
    counts=(*moves(), *WITHOUT_CONFLICTS),
    speed=timed({"bronze": 0.50, "silver": 0.65, "gold": 0.80}),
    shares=SHARES,
)
