"""Whether a mistake with a gate is rejected there, by the message that it names."""

from __future__ import annotations

from collections.abc import Iterator

from autograder.authoring.mistakes import Mistake, mistakes
from autograder.authoring.prints import needed
from autograder.exercise import Exercise
from autograder.judge.judge import Judge
from autograder.judge.results import Result
from autograder.submission.submitted import Cells

_FINE = ("passed", "not checked", "not measured")


def grade_mistake(exercise: Exercise, mistake: Mistake, judge: Judge) -> Result:
    """Grade a mistake beside the answers that its exercise needs."""
    return judge.grade(exercise, Cells({**needed(exercise), exercise.id: mistake.cell}))


def otherwise(mistake: Mistake, result: Result) -> str:
    """Say how a mistake's grade is not what its record says; '' where it is."""
    failed = next((g.name for g in result.gates if g.status not in _FINE), "none")
    if mistake.gate in ("", failed) and mistake.says in result.message:
        return ""
    gate = f"the gate {mistake.gate}" if mistake.gate else "a gate"
    return (
        f"{mistake.name}: wanted {gate} to say {mistake.says!r}; the first to fail "
        f"was {failed}, and it said: {result.message}"
    )


def check_gated(exercise: Exercise, judge: Judge) -> Iterator[str]:
    """Grade an exercise's mistakes with a gate; give '' or what is wrong for each."""
    for mistake in mistakes(exercise):
        if mistake.gate:
            yield otherwise(mistake, grade_mistake(exercise, mistake, judge))
