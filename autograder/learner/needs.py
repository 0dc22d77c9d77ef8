"""``# needs: ID`` at a cell's head: the cell waits until that exercise was begun.

A notebook runs from top to bottom whatever is solved, and a cell that calls a
reader's own function says in a line what it waits for, instead of failing.
"""

from __future__ import annotations

from autograder.exercises import all_exercises
from autograder.learner.recorder import recorder
from autograder.submission.ipynb import needs_in
from autograder.submission.submitted import is_untouched


def listen() -> None:
    """Read the first line of each cell that this process's shell runs from now on."""
    from IPython import get_ipython

    shell = get_ipython()  # type: ignore[no-untyped-call, unused-ignore]
    shell.input_transformers_cleanup.append(or_what_it_waits_for)


def or_what_it_waits_for(lines: list[str]) -> list[str]:
    """Return a cell's lines, or one that says what they wait for.

    Args:
        lines: the cell, as IPython hands it to what transforms its input.
    """
    for name in needs_in("".join(lines)):
        if waits := _waits_for(name):
            return [f"print({waits!r})\n"]
    return lines


def _waits_for(name: str) -> str:
    """Say what is missing of an exercise and those that it needs; '' if nothing is."""
    exercise = all_exercises().get(name)
    if exercise is None:
        return f"No exercise is called {name}: see the first line of this cell."
    cell = recorder().cells.get(name)
    if cell is None:
        return f"This cell waits for {name}: run that exercise's cell first."
    if is_untouched(exercise, cell):
        return f"{name} is not solved yet: this cell runs when it is."
    return next(filter(None, map(_waits_for, exercise.needs)), "")
