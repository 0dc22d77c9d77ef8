"""Threads that wait for one another, and learn when none of them can go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from kernelwright.errors import KernelDeadlock


class Threads:
    """Some threads, of which those that run are counted: at 0 there is a deadlock."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running, self._waiting, self._stuck = 1, 0, False

    def run(self, functions: Sequence[Callable[[], None]]) -> None:
        """Run functions at the same time; raise what is raised first."""
        errors: list[BaseException] = []
        left = len(functions)

        def body(function: Callable[[], None]) -> None:
            nonlocal left
            try:
                function()
            except BaseException as error:
                errors.append(error)
            with self._changed:
                left -= 1
                if left:  # the last one's place is the caller's again
                    self._rest()

        with self._changed:
            self._running += left - 1
        threads = [threading.Thread(target=body, args=(f,)) for f in functions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    @contextmanager
    def change(self) -> Iterator[None]:
        """Change what others wait for, alone; then they look again."""
        with self._changed:
            yield
            self._wake()

    def until(self, true: Callable[[], bool], what: object) -> None:
        """Wait until something is true.

        Raises:
            KernelDeadlock: nobody is left who could make it so; it names ``what``.
        """
        with self._changed:
            while not true():
                self._waiting += 1
                self._rest()
                if not self._stuck:
                    self._changed.wait()
                if self._stuck:
                    raise KernelDeadlock(
                        f"deadlock: this role waits for {what}, and every other role "
                        "waits too or has ended; wanted an arrival for each wait, and "
                        "the phase that comes next",
                        kind="deadlock",
                    )

    def _rest(self) -> None:
        self._running -= 1
        if self._running == 0 and self._waiting:
            self._stuck = True
            self._wake()

    def _wake(self) -> None:
        # Whoever is woken runs at once: it may find true what it waits for.
        self._running, self._waiting = self._running + self._waiting, 0
        self._changed.notify_all()
