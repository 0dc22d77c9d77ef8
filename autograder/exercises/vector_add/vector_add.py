"""Vector add: whole blocks, and a guard."""

from __future__ import annotations

from autograder.exercise import Exercise, Tolerance
from autograder.exercises.vector_add.shared import (
    CASES,
    add_problem,
    add_reference,
    covering_launch,
    timed,
)
from autograder.ideals import moves

VECTOR_ADD = Exercise(
    id="vector_add",
    title="Vector add",
    kind="core",
    points=10,
    language="cuda",
    entry="kernel",
    name="vector_add",
    source="solutions/vector_add/guarded.cu",
    goal="Add two arrays of any length: `out[i] = x[i] + y[i]`.",
    requirements=(
        "The launch is whole blocks of 256 threads: often more threads than `n`.",
        "No thread reads or writes past the last element, `n` = 0 included.",
    ),
    problem=add_problem(covering_launch),
    reference=add_reference,
    cases=CASES,
    tolerance=Tolerance(factor=1.0),
    hints=(
        "257 elements need two blocks of 256. What should the other 255 threads of "
        "the second block do?",
        "Compute `i` as in add_one. Then ask whether this thread has an element at "
        "all: it has one if `i` is less than `n`.",
        "`int i = ...;` then `if (i < n) { ... }` with the addition inside the braces.",
    ),
    onward="Time it against torch.add with kw.bench: who is faster, and why?",
    counts=moves(),
    # One element a thread has its own ceiling, 0.81 on an H200; the ladder goes on.
    speed=timed({"bronze": 0.40, "silver": 0.60, "gold": 0.75}),
)
