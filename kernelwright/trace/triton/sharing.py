"""Which programs of a launch load and store the same elements."""

from __future__ import annotations

import numpy as np

from kernelwright.trace.memory import Buffer
from kernelwright.trace.report import Op, Sharing, Triple


class Touches:
    """What the programs of one launch did to one parameter's memory in one way.

    Args:
        buffer: the parameter's memory.
        op: ``load`` or ``store``.
    """

    def __init__(self, buffer: Buffer, op: Op) -> None:
        self._buffer, self._op = buffer, op
        last = (buffer.high - buffer.low) // buffer.element - 1
        # Some stand for all; neighbours too, for who goes over it in steps.
        places = {0, min(1, last), last // 3, 2 * last // 3, last}
        self._watched: dict[int, set[Triple]] = {
            at * buffer.element: set() for at in places
        }
        # Of each byte that begins an element, who stored it last, by his number from 1.
        self._writer: np.ndarray | None = None
        self._numbers: dict[Triple, int] = {}
        self._line = self._lanes = 0
        self._met: int | None = None
        self._there: set[Triple] = set()

    def add(self, offsets: np.ndarray, program: Triple, line: int) -> None:
        """Take note of one access; ``offsets`` are bytes from the buffer's begin."""
        low, high = int(offsets.min()), int(offsets.max())
        for at, programs in self._watched.items():
            if low <= at <= high and at in offsets:
                programs.add(program)
        if self._op == "store":
            self._store(offsets, program, line)

    def _store(self, offsets: np.ndarray, program: Triple, line: int) -> None:
        if self._writer is None:
            size = self._buffer.high - self._buffer.low
            self._writer = np.zeros(size, np.int32)
        number = self._numbers.setdefault(program, len(self._numbers) + 1)
        before = self._writer[offsets]
        others = offsets[(before != 0) & (before != number)]
        # Each lane leaves its own number: where another's stands, two have stored.
        lanes = np.arange(len(offsets), dtype=np.int32)
        self._writer[offsets] = lanes
        twice = offsets[self._writer[offsets] != lanes]
        self._writer[offsets] = number
        if self._met is None and (len(others) or len(twice)):
            self._met = int(others[0] if len(others) else twice[0])
            self._line = line
            self._lanes = int((offsets == self._met).sum())
            if len(others):
                was = int(before[offsets == self._met][0])
                self._there.add(list(self._numbers)[was - 1])
        if self._met is not None and self._met in offsets:
            self._there.add(program)

    def stored_by_another(
        self, offsets: np.ndarray, program: Triple
    ) -> tuple[int, Triple] | None:
        """Return an offset that another program stored to, and which did last."""
        if self._writer is None:
            return None
        last = self._writer[offsets]
        found = np.flatnonzero((last != 0) & (last != self._numbers.get(program, 0)))
        if not found.size:
            return None
        return int(offsets[found[0]]), list(self._numbers)[last[found[0]] - 1]

    def sharing(self) -> Sharing:
        """Return how many programs touched the same."""
        element = self._buffer.element
        return Sharing(
            buffer=self._buffer.name,
            position=self._buffer.position,
            op=self._op,
            elements=(self._buffer.high - self._buffer.low) // element,
            threads=0,
            blocks=len(set.intersection(*self._watched.values())),
            index=(self._met or 0) // element,
            line=self._line,
            index_threads=self._lanes,
            index_blocks=len(self._there),
        )
