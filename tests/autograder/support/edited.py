"""An exercise's right answer with edits, and what rejects it."""

from __future__ import annotations

from autograder.exercise import Exercise
from autograder.exercises import all_exercises
from autograder.judge.judge import Judge
from autograder.regions import cell_source
from autograder.submission.submitted import Cells


def graded(judge: Judge, exercise: Exercise, *edits: tuple[str, str]) -> str:
    """Return the first gate that rejects an edited answer, and what it says; or ''."""
    cell = cell_source(exercise, solved=True)
    for old, new in edits:
        assert cell.count(old) == 1, old
        cell = cell.replace(old, new)
    needed = (all_exercises()[one] for one in exercise.needs)
    cells = {one.id: cell_source(one, solved=True) for one in needed}
    result = judge.grade(exercise, Cells({**cells, exercise.id: cell}))
    fine = ("passed", "not measured", "not checked")
    bad = [gate for gate in result.gates if gate.status not in fine]
    assert bad or result.earned == result.possible > 0
    return f"{bad[0].name}: {bad[0].status}, {bad[0].message}" if bad else ""
