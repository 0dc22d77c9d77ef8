"""The detective: a tiled product whose warps overtake each other."""

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
from autograder.ideals import barriers, moves

MISSING_BARRIER = Exercise(
    id="missing_barrier",
    title="The kernel that passes its tests",
    kind="detective",
    points=15,
    language="cuda",
    entry="kernel",
    name="missing_barrier",
    source="autograder/exercises/matmul/missing_barrier.cu",
    goal="Find out why a tiled product is wrong on large matrices, at other places "
    "each time, and mend it.",
    requirements=(
        "The same tiles and the same launch as for the tiled product.",
        "No race in any trace; at most two barriers for each pair of tiles.",
        "Right for every m, n and k.",
    ),
    problem=problem_with(tiles(32, 32, 32, 32)),
    reference=reference,
    cases=CASES,
    tolerance=TOLERANCE,
    hints=(
        "The trace names two lines and what they share. Which of the two belongs to "
        "the next round of the loop?",
        "A warp that is done with its products starts the next round, and stores. "
        "What keeps it from doing so while another still reads?",
        "A second __syncthreads(); after the loop over i, inside the loop over start "
        "and outside of every if.",
    ),
    onward="With two pairs of tiles that take turns, one barrier is enough. Why?",
    counts=(*moves({"a": 96 / 32, "b": 64 / 32}), barriers(8, 9)),
    shares=SHARES,
)
