"""What roles wait for: an mbarrier, and an array of them."""

from __future__ import annotations

from typing import Any

from kernelwright.errors import KernelFault
from kernelwright.gluon.memory import one_of


class Barrier:
    """An mbarrier: arrivals and bytes that are due; the number of phases behind it."""

    def __init__(self) -> None:
        self.count = self.due = self.bytes = self.phases = 0

    def __str__(self) -> str:
        due = f"{self.due} of {self.count} arrivals and {self.bytes} bytes"
        return f"an mbarrier with {due} due"

    def begin(self, count: int) -> None:
        """Set how many arrivals end a phase."""
        self.count = self.due = int(count)

    def change(self, arrivals: int, more: int) -> None:
        """Count down, and begin a new phase where nothing is due.

        Raises:
            KernelFault: more arrive than are due.
        """
        self.due, self.bytes = self.due - int(arrivals), self.bytes + int(more)
        if self.due < 0:
            raise KernelFault(
                f"more arrive at an mbarrier than are due: one over the {self.count} "
                "of its phase; wanted an init with their count, and a wait for the "
                "phase before",
                kind="barrier",
            )
        if self.due == 0 and self.bytes == 0:
            self.phases, self.due = self.phases + 1, self.count


class Barriers(Barrier):
    """An array of mbarriers; itself the first, where it is not indexed."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.all = [self, *(Barrier() for _ in range(length - 1))]

    def index(self, at: Any) -> Barrier:
        """Take one."""
        return self.all[one_of(len(self.all), at)]
