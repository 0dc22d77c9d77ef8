"""Several judges of one seed, each of which grades one thing at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue

from autograder.judge.judge import Judge


@contextmanager
def started(judges: Iterable[Judge]) -> Iterator[Sequence[Judge]]:
    """Open judges and start their workers' parents; close all at the end."""
    with ExitStack() as stack:
        made = [stack.enter_context(judge) for judge in judges]
        for judge in made:
            judge.server.start()
        yield made


class Idle:
    """Judges, of which each thread borrows one that nobody else has."""

    def __init__(self, judges: Sequence[Judge]) -> None:
        self._idle: SimpleQueue[Judge] = SimpleQueue()
        for judge in judges:
            self._idle.put(judge)

    @contextmanager
    def borrowed(self) -> Iterator[Judge]:
        """Wait for one, and give it back."""
        judge = self._idle.get()
        try:
            yield judge
        finally:
            self._idle.put(judge)
