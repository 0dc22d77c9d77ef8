"""``check(f)`` and ``hint(f)``: the grader's own path, from inside a notebook.

What is checked is the text of the exercise's cell, in a fresh worker, never the
object that the notebook's memory holds: a helper that was defined elsewhere, or
yesterday, cannot make an answer pass here and fail in ``make grade``. Where the
object comes from a later cell that is not marked as the exercise's, that cell's text
is checked, and the result says that ``make grade`` will not find it.
"""

from __future__ import annotations

import atexit
import inspect
import linecache
import os
import threading
from typing import Any

from autograder.exercise import Exercise
from autograder.exercises import all_exercises
from autograder.judge.judge import Judge
from autograder.judge.trial import Deadlines
from autograder.languages import SYNTAX
from autograder.learner import needs
from autograder.learner.recorder import recorder
from autograder.learner.show import CheckResult, Hint, Notice
from autograder.submission.ipynb import exercise_in
from autograder.submission.submitted import Answer, Cells
from autograder.supervisor.workers import warm_toolchain

# A learner waits in front of the screen: a loop without an end is said soon.
DEADLINES = Deadlines(prepare=30.0, case=8.0, kernel=4.0, all=40.0)
_WAIT_S = 20.0


def check(answer: object) -> CheckResult | Notice:
    """Check an exercise's answer on the public cases.

    Args:
        answer: the kernel or function that the exercise's cell defines, or the
            exercise's id as text.

    Returns:
        The result: ``.passed``, ``.message``, ``.result``; it shows itself. Nothing
        is raised, whatever the answer does.
    """
    try:
        exercise = find_exercise(answer)
        if exercise is None:
            return _unknown("check", answer)
        cells, note = _cells_for(exercise, answer)
        judge = _warm_judge()
        result = judge.grade(exercise, Cells(cells, name="this notebook"))
        return CheckResult(result, seed=judge.seed, note=note)
    except KeyboardInterrupt:
        _close()
        return Notice("The check was interrupted.")
    except Exception as error:
        # Ours, not the learner's: it must not look like a verdict.
        _close()
        return Notice(
            f"The check itself failed ({type(error).__name__}: {error}). It says "
            "nothing about your answer. `make grade` writes a report."
        )


def hint(answer: object) -> Hint | Notice:
    """Give the next hint for an exercise; it never costs points."""
    try:
        exercise = find_exercise(answer)
    except Exception as error:
        return Notice(f"There is no hint: {type(error).__name__}: {error}")
    if exercise is None:
        return _unknown("hint", answer)
    given = _hints_given.get(exercise.id, 0)
    number = min(given, len(exercise.hints) - 1)
    _hints_given[exercise.id] = given + 1
    last = given >= len(exercise.hints)
    return Hint(exercise.hints[number], number + 1, len(exercise.hints), last)


_hints_given: dict[str, int] = {}
_judge: Judge | None = None
_lock = threading.Lock()


def find_exercise(answer: object) -> Exercise | None:
    """Return the exercise that an id, a kernel or a function stands for."""
    every = all_exercises()
    if isinstance(answer, Exercise):
        return answer
    if isinstance(answer, str):
        named = [e for e in every.values() if answer in (e.id, e.name)]
    else:
        name = getattr(answer, "name", None) or getattr(answer, "__name__", None)
        if not isinstance(name, str):
            return None
        base = name.split("<")[0].split("::")[-1]
        named = [e for e in every.values() if e.name.split("<")[0] == base]
    if len(named) > 1:
        # Two chapters may use one name: the cell that was run last decides.
        recorded = list(recorder().cells)
        named.sort(key=lambda e: recorded.index(e.id) if e.id in recorded else -1)
    return named[-1] if named else None


def _cells_for(exercise: Exercise, answer: object) -> tuple[dict[str, str], str]:
    """Collect the cells that were run, and what is to be said about them.

    The exercise's own cell counts, also where it raised and the object is older than
    it. An object that a later cell made, one without the exercise's line, is what the
    learner asks about: a verdict on another text would be a lie.
    """
    record = recorder()
    cells = dict(record.cells)
    own = _source_of(answer, exercise)
    named = exercise_in(own)
    if not own:
        return cells, ""
    if exercise.id in cells and (
        named == exercise.id or record.ran_after(exercise.id, own)
    ):
        return cells, ""
    cells[exercise.id] = own
    return cells, "" if named == exercise.id else _without_line(exercise, named)


def _without_line(exercise: Exercise, named: str | None) -> str:
    """Say that a cell was judged that ``make grade`` will not find."""
    line = f"`{SYNTAX[exercise.language].line(exercise.id)}`"
    if named is None:
        found, mend = f"has no {line} line", f"Put {line} at its head"
    else:
        unknown = "" if named in all_exercises() else ", which is no exercise"
        found = f"says `exercise: {named}`{unknown}"
        mend = f"If it is your answer, the line is {line}: write that"
    return (
        f"The cell that defines {exercise.name} {found}, so `make grade` will not "
        f"find it. {mend} and run it again."
    )


def _source_of(answer: object, exercise: Exercise) -> str:
    """Return the text that an object was made from, where it can be had."""
    if isinstance(answer, str):
        return ""
    if magic := SYNTAX[exercise.language].magic:
        source = getattr(answer, "source", "")
        if not isinstance(source, str) or not source:
            return ""
        # A notebook's cell has its magic line blanked: it goes back where it was.
        return f"{magic}{source}" if source.startswith("\n") else f"{magic}\n{source}"
    target: Any = getattr(answer, "fn", answer)
    try:
        # The cell or file as a whole: a function needs the helpers beside it.
        file = inspect.getsourcefile(target)
        lines = linecache.getlines(file) if file else []
        return "".join(lines) or inspect.getsource(target)
    except (OSError, TypeError):
        return ""


def _warm_judge() -> Judge:
    """Return the notebook's judge, started; one serves all checks."""
    global _judge
    with _lock:
        if _judge is None:
            seed = os.environ.get("SEED", "")
            _judge = Judge(
                seed=int(seed) if seed.isdigit() else None,
                public=True,
                deadlines=DEADLINES,
                speed_budget_s=_WAIT_S,
            )
            _judge.server.start()
            warm_toolchain(_judge.device)
        return _judge


def _close() -> None:
    """End the workers' parent; the next check starts another."""
    global _judge
    with _lock:
        if _judge is not None:
            _judge.close()
            _judge = None


def _unknown(verb: str, answer: object) -> Notice:
    name = getattr(answer, "name", None) or getattr(answer, "__name__", None)
    shown = name if isinstance(name, str) else repr(answer)[:80]
    ids = ", ".join(all_exercises())
    return Notice(
        f"{shown} is no exercise's answer. {verb} takes the kernel or function that an "
        f"exercise's cell defines, or an id: {ids}."
    )


def _prestart() -> None:
    """Start the workers' parent while the learner reads: the first check is quick."""
    try:
        _warm_judge()
    except Exception:  # said when something is checked, not before
        _close()


def _in_notebook() -> bool:
    return recorder().attached


# Answer is what Cells returns; named here so that a notebook's help shows it.
__all__ = ["Answer", "check", "find_exercise", "hint"]

atexit.register(_close)
if _in_notebook():
    needs.listen()
    threading.Thread(target=_prestart, name="kernelwright-check", daemon=True).start()
