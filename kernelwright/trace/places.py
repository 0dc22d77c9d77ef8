"""Where an address lies, in the author's terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelwright.emulator.tracing import (
    DYNAMIC_SHARED,
    NOWHERE,
    STATIC_SHARED,
    Recorded,
)
from kernelwright.trace.memory import Buffer
from kernelwright.trace.names import SharedVariables
from kernelwright.trace.own_arrays import Subscript
from kernelwright.trace.report import Space, Triple
from kernelwright.trace.shapes import Shape


@dataclass(frozen=True)
class Place:
    """An address: the buffer's name, the byte in it, and the buffer's size.

    ``shape`` is that of a shared array whose declaration tells it.
    """

    buffer: str | None
    offset: int
    size: int
    element: int
    shape: Shape = ()


@dataclass(frozen=True)
class Touched:
    """A place that an instruction touched: which, an address in it, who saw it."""

    place: int
    address: int
    worker: Recorded


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
        absent: names of the parameters that were given None.
        ranks: how many launched it at once.
        subscripts: where a thread's own arrays are indexed, in rising order.
        dynamic_element: bytes of an element of the dynamic shared array; 0 where that
            is not known.
    """

    buffers: Sequence[Buffer]
    own: Sequence[tuple[int, int, str]]
    shared: SharedVariables
    dynamic: str
    dynamic_bytes: int
    grid: Triple
    block: Triple
    regions: Sequence[tuple[int, int, bool]]
    absent: Sequence[str] = ()
    ranks: int = 1
    subscripts: Sequence[Subscript] = ()
    dynamic_element: int = 0

    @property
    def empty(self) -> list[str]:
        """Names of the parameters that hold no element; their address is null."""
        return [buffer.name for buffer in self.buffers if _is_empty(buffer)]

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
            return Place(*found)
        if place == DYNAMIC_SHARED:
            offset = address - dynamic_low
            return Place(self.dynamic, offset, self.dynamic_bytes, self.dynamic_element)
        for buffer in self.buffers:
            if buffer.low <= address < buffer.high:
                return _in(buffer, address)
        for low, high, name in self.own:
            if low <= address < high:
                return Place(name, address - low, high - low, 1)
        # Before null the addresses come round to the largest.
        address -= (address >> 63) << 64
        if not self.buffers or address < 1 << 16:
            return self._beside_null(address)
        meant = self.buffers
        if place < len(self.regions):
            low, high = self.regions[place][:2]
            meant = [b for b in meant if low <= b.low < high] or meant
        nearest = min(meant, key=lambda b: _distance(b, address))
        if _is_empty(nearest) or (
            self.absent and address < _distance(nearest, address)
        ):
            return self._beside_null(address)
        return _in(nearest, address)

    def _beside_null(self, address: int) -> Place:
        """Name the one parameter whose address is null; of several none is sure."""
        empty = [buffer for buffer in self.buffers if _is_empty(buffer)]
        if len(empty) == 1 and not self.absent:
            return _in(empty[0], address)
        return Place(None, address, 0, 1)

    def meant(
        self, place: int, address: int, worker: Recorded, touched: Sequence[Touched]
    ) -> tuple[Place, Space]:
        """Say where a wild access was meant to go, and how far it is from there.

        Args:
            place: that the runtime gave it.
            address: of the access.
            worker: that recorded it.
            touched: where else the same instruction went. Without any it was meant for
                what is nearest.
        """
        low = worker.static_low, worker.dynamic_low
        if not touched:
            return self.find(place, address, *low), self.space(place)
        bases = {STATIC_SHARED: worker.static_low, DYNAMIC_SHARED: worker.dynamic_low}
        found = []
        for other in touched:
            # A sample's address, as it would be in this worker's own shared memory.
            theirs = {
                STATIC_SHARED: other.worker.static_low,
                DYNAMIC_SHARED: other.worker.dynamic_low,
            }
            moved = bases.get(other.place, 0) - theirs.get(other.place, 0)
            sample = self.find(other.place, other.address + moved, *low)
            offset = sample.offset + address - other.address - moved
            found.append((replace(sample, offset=offset), self.space(other.place)))
        return min(found, key=lambda m: max(-m[0].offset, m[0].offset - m[0].size))

    def thread(self, number: int) -> Triple:
        """Return the index of a thread, from its number in the block."""
        x, y, _ = self.block
        return (number % x, number // x % y, number // (x * y))

    def block_index(self, number: int) -> Triple:
        """Return the index of a block, from its number in the launch."""
        x, y, z = self.grid
        return (number % x, number // x % y, number // (x * y) % z)

    def rank(self, number: int) -> int:
        """Return which rank's a block is, from its number in the launch."""
        x, y, z = self.grid
        return number // (x * y * z)


def _is_empty(buffer: Buffer) -> bool:
    return buffer.low == buffer.high


def _in(buffer: Buffer, address: int) -> Place:
    return Place(
        buffer.name, address - buffer.low, buffer.high - buffer.low, buffer.element
    )


def _distance(buffer: Buffer, address: int) -> int:
    if address < buffer.low:
        return buffer.low - address
    return max(address - buffer.high + 1, 0)
