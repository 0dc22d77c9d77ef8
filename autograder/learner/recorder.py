"""Records the exercise cells that a notebook runs, by their ``exercise:`` line."""

from __future__ import annotations

from functools import cache
from typing import Any

from autograder.languages import code_of
from autograder.submission.ipynb import exercise_in


class Recorder:
    """The text of each exercise's cell as it was last run, the latest last.

    Cells that raised are recorded too: what is on the screen is what is checked.
    """

    def __init__(self) -> None:
        self.cells: dict[str, str] = {}
        self.attached = False
        # When each text was last run, counted in cells.
        self._last_run: dict[str, int] = {}
        self._count = 0

    def attach(self, shell: Any) -> None:
        """Listen to a shell, and take in what it ran before."""
        if self.attached:
            return
        for source in _history(shell):
            self.record(source)
        shell.events.register("post_run_cell", self._ran)
        self.attached = True

    def record(self, source: object) -> None:
        """Keep a cell if it is an exercise's."""
        if not isinstance(source, str):
            return
        text = _bare(source)
        self._count += 1
        self._last_run[text] = self._count
        exercise = exercise_in(source)
        if exercise:
            self.cells.pop(exercise, None)
            self.cells[exercise] = source

    def ran_after(self, exercise: str, source: str) -> bool:
        """Say whether an exercise's cell was run later than another cell was."""
        own = self._last_run.get(_bare(self.cells.get(exercise, "")), 0)
        return own > self._last_run.get(_bare(source), own)

    def _ran(self, result: Any) -> None:
        self.record(getattr(getattr(result, "info", None), "raw_cell", None))


@cache
def recorder() -> Recorder:
    """Return this process's recorder, attached where IPython runs."""
    made = Recorder()
    try:
        from IPython import get_ipython
    except ImportError:
        return made
    shell = get_ipython()  # type: ignore[no-untyped-call, unused-ignore]
    if shell is not None:
        made.attach(shell)
    return made


def _bare(source: str) -> str:
    """Return a cell's text without its magic line, as a kernel remembers it."""
    return code_of(source).strip()


def _history(shell: Any) -> list[str]:
    manager = getattr(shell, "history_manager", None)
    cells = getattr(manager, "input_hist_raw", None)
    return list(cells) if isinstance(cells, list) else []
