"""How far a class is graded: a line a submission, with the rate and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable

from autograder.classroom.grade_class import Graded
from autograder.judge.words import clean
from autograder.report.points import out_of


class Progress:
    """Prints a line for each submission as it is graded.

    Args:
        total: how many there are.
        clock: seconds from any beginning.
    """

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.done = total, 0
        self._clock, self._begun = clock, clock()

    def line(self, row: Graded) -> None:
        """Say what came of a submission, and when the last will be graded."""
        self.done += 1
        said = [out_of(row.earned, row.possible, row.points)] if row.possible else []
        told = "; ".join([*said, *([row.trouble] if row.trouble else [])])
        line = clean(f"[{self.done}/{self.total}] {row.name}: {told}", 400)
        print(f"{line} ({self._rate()})", flush=True)

    def _rate(self) -> str:
        seconds = max(self._clock() - self._begun, 1e-9)
        left = seconds / self.done * (self.total - self.done)
        least = f"{left / 60:.0f} min" if left >= 90 else f"{left:.0f} s"
        return f"{60 * self.done / seconds:.3g} a minute, {least} left"
