"""Where an address lies, in the author's terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.emulator.tracing import DYNAMIC_SHARED, NOWHERE, STATIC_SHARED
from kernelwright.trace.memory import Buffer
from kernelwright.trace.names import SharedVariables
from kernelwright.trace.report import Space, Triple


@dataclass(frozen=True)
class Place:
    """An address: the buffer's name, the byte in it, and the buffer's size."""

    buffer: str | None
    offset: int
    size: int
    element: int


@dataclass(frozen=True)
class Places:
    """All memory of one traced launch.

    Args:
        buffers: the parameters' memory; the first regions are theirs.
        own: low, high and name of the module's own variables, the regions after them.
        shared: static shared variables.
        dynamic: name of the dynamic shared array.
        dynamic_bytes: its size.
        regions: low and high of each region, and whether it is constant memory.
    """

    buffers: Sequence[Buffer]
    own: Sequence[tuple[int, int, str]]
    shared: SharedVariables
    dynamic: str
    dynamic_bytes: int
    grid: Triple
    block: Triple
    regions: Sequence[tuple[int, int, bool]]

    def space(self, place: int) -> Space:
        """Return the memory that a recorded place belongs to."""
        if place in (STATIC_SHARED, DYNAMIC_SHARED):
            return "shared"
        if place != NOWHERE and self.regions[place][2]:
            return "constant"
        return "global"

    def find(
        self, place: int, address: int, static_low: int, dynamic_low: int
    ) -> Place:
        """Say where a recorded address lies; outside of all, what it is nearest to."""
        if place == STATIC_SHARED:
            found = self.shared.at(address - static_low)
            if found is None:
                return Place(None, address - static_low, 0, 1)
            return Place(found[0], found[1], 0, 1)
        if place == DYNAMIC_SHARED:
            return Place(self.dynamic, address - dynamic_low, self.dynamic_bytes, 1)
        for buffer in self.buffers:
            if buffer.low <= address < buffer.high:
                return _in(buffer, address)
        for low, high, name in self.own:
            if low <= address < high:
                return Place(name, address - low, high - low, 1)
        if not self.buffers or address < 1 << 16:
            return Place(None, address, 0, 1)
        meant = self.buffers
        if place < len(self.regions):
            low, high = self.regions[place][:2]
            meant = [b for b in meant if low <= b.low < high] or meant
        return _in(min(meant, key=lambda b: _distance(b, address)), address)

    def thread(self, number: int) -> Triple:
        """Return the index of a thread, from its number in the block."""
        x, y, _ = self.block
        return (number % x, number // x % y, number // (x * y))

    def block_index(self, number: int) -> Triple:
        """Return the index of a block, from its number in the grid."""
        x, y, _ = self.grid
        return (number % x, number // x % y, number // (x * y))


def _in(buffer: Buffer, address: int) -> Place:
    return Place(
        buffer.name, address - buffer.low, buffer.high - buffer.low, buffer.element
    )


def _distance(buffer: Buffer, address: int) -> int:
    if address < buffer.low:
        return buffer.low - address
    return max(address - buffer.high + 1, 0)
