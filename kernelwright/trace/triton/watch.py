"""What is written down while Triton kernels run, and which lanes may go through."""

from __future__ import annotations

import linecache
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np

from kernelwright.trace.memory import Buffer
from kernelwright.trace.report import Op, Problem, Sharing, Triple
from kernelwright.trace.triton.report import (
    Busiest,
    Kept,
    Launch,
    ProgramAccess,
    TritonReport,
)
from kernelwright.trace.triton.sharing import Touches

_DID = {"load": "reads", "store": "writes", "atomic": "updates"}
_MOST_PROBLEMS = 20
_KEPT_REQUESTS, _KEPT_LANES = 4096, 1 << 18
_SECTOR = 32

Site = tuple[str, int, Op, str, int]  # file, line, operation, buffer, bytes a lane


@dataclass
class _Sums:
    """What one site did so far."""

    requests: int = 0
    lanes: int = 0
    masked: int = 0
    outside: int = 0
    sectors: int = 0
    ideal_sectors: int = 0


@dataclass
class Watch:
    """What was seen while kernels ran.

    Args:
        files: the author's files; what happens is put on the innermost line in one.
        widening: whether the file of each kernel that is launched is one, too.
        unwritten: parameters whose memory counts as never written.
    """

    files: set[str]
    widening: bool = True
    unwritten: tuple[str | int, ...] = ()
    launches: list[Launch] = field(default_factory=list)
    problems: dict[tuple[Any, ...], Problem] = field(default_factory=dict)
    notes: dict[tuple[str, int, str], str] = field(default_factory=dict)
    _buffers: list[Buffer] = field(default_factory=list)
    _borders: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    _unknown: dict[int, np.ndarray] = field(default_factory=dict)
    _sums: dict[Site, _Sums] = field(default_factory=dict)
    _log: list[Kept] = field(default_factory=list)
    _extents: dict[str, dict[tuple[int, int], None]] = field(default_factory=dict)
    _touches: dict[tuple[int, Op], Touches] = field(default_factory=dict)
    _sharing: list[Sharing] = field(default_factory=list)
    _products: dict[int, int] = field(default_factory=dict)
    _moved: dict[Triple, int] = field(default_factory=dict)  # bytes by program
    _busiest: Busiest = field(default_factory=lambda: Busiest(0, 0, 0))
    _in_order: set[Triple] = field(default_factory=set)  # programs that used an atomic

    def launched(
        self, kernel: Callable[..., Any], name: str, buffers: list[Buffer]
    ) -> None:
        """Begin with a launch: from here on its buffers are all there is."""
        self._end_launch()
        self.launches.append(Launch(name, (0, 0, 0)))
        self._buffers = _outermost(buffers)
        between = zip(self._buffers, self._buffers[1:], strict=False)
        # Half-way between two buffers: an address belongs to the nearer one.
        middles = [max(a.high, (a.high + b.low) // 2) for a, b in between]
        self._borders = np.maximum.accumulate(np.array(middles, np.int64))
        self._unknown = {
            at: np.ones(b.high - b.low, bool)
            for at, b in enumerate(self._buffers)
            if b.unwritten
        }
        code = kernel.__code__
        if self.widening:
            self.files.add(code.co_filename)
        lines = [line for *_, line in code.co_lines() if line]
        extent = (code.co_firstlineno, max(lines, default=code.co_firstlineno))
        self._extents.setdefault(code.co_filename, {})[extent] = None

    def _end_launch(self) -> None:
        """Keep what the programs of the last launch had in common."""
        self._sharing += [touches.sharing() for touches in self._touches.values()]
        self._touches.clear()
        if self._moved:
            done = Busiest(
                max(self._moved.values()),
                sum(self._moved.values()),
                math.prod(self.launches[-1].grid),
            )
            self._busiest = max(self._busiest, done, key=lambda each: each.all)
            self._moved.clear()
        self._in_order.clear()

    def sized(self, grid: Triple) -> None:
        """Note the grid of the launch that has begun."""
        self.launches[-1] = Launch(self.launches[-1].kernel, grid)

    def check(
        self, op: Op, addresses: Any, mask: Any, width: int, program: Triple
    ) -> np.ndarray:
        """Write down one block of addresses; return which lanes may go through."""
        at = np.asarray(addresses).astype(np.int64)
        on = np.broadcast_to(np.asarray(mask).astype(bool), at.shape)
        allowed = np.zeros(at.shape, bool)
        place = self.line()
        owner = self._owners(at, on)
        for number in np.flatnonzero(np.bincount(owner.reshape(-1))):
            if not self._buffers:
                break
            buffer = self._buffers[number]
            mine = owner == number
            inside = mine & on & (at >= buffer.low) & (at + width <= buffer.high)
            allowed |= inside
            lanes = _Lanes(
                (at - buffer.low)[inside],
                (at - buffer.low)[mine & ~on],
                (at - buffer.low)[mine & on & ~inside],
                np.flatnonzero(inside),
            )
            self._note(place, op, buffer, width, program, lanes)
            if lanes.outside.size:
                self._outside(place, op, buffer, lanes, program)
            if op == "atomic":
                self._in_order.add(program)
            elif lanes.inside.size:
                if op == "load":
                    self._race(place, int(number), lanes.inside, program)
                key = int(number), op
                touches = self._touches.setdefault(key, Touches(buffer, op))
                touches.add(lanes.inside, program, place[1])
            self._written(place, op, int(number), width, lanes.inside, program)
        if not self._buffers and on.any():
            self._no_tensor(place, op, int(on.sum()), program)
        return allowed

    def _owners(self, at: np.ndarray, on: np.ndarray) -> np.ndarray:
        """Return the buffer that each lane is in or nearest to.

        It is nearly always one for all; a lane that is off may have any address, and
        belongs with those that are on.
        """
        owner = np.searchsorted(self._borders, at, side="right")
        used = np.bincount(owner[on])
        if used.size:
            strays = ~on & ~np.isin(owner, np.flatnonzero(used))
            owner[strays] = used.argmax()
        return owner

    def multiplied(self, terms: int, bits: int) -> None:
        """Count the multiply-adds of a ``tl.dot`` by the bits of its wider operand."""
        self._products[bits] = self._products.get(bits, 0) + terms

    def doubt(self, kind: str, message: str) -> None:
        """Note that the interpreter is not to be trusted on the running line."""
        file, line = self.line()
        self.notes.setdefault((file, line, kind), f"line {line}: {message}")

    def line(self) -> tuple[str, int]:
        """Return the innermost line that is in one of the author's files."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename in self.files:
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
        return "", 0

    def _note(
        self,
        place: tuple[str, int],
        op: Op,
        buffer: Buffer,
        width: int,
        program: Triple,
        lanes: _Lanes,
    ) -> None:
        sums = self._sums.setdefault((*place, op, buffer.name, width), _Sums())
        sums.requests += 1
        sums.lanes += lanes.inside.size
        self._moved[program] = self._moved.get(program, 0) + lanes.inside.size * width
        sums.masked += lanes.off.size
        sums.outside += lanes.outside.size
        touched = lanes.inside + buffer.low
        sums.sectors += _distinct(touched // _SECTOR, (touched + width - 1) // _SECTOR)
        packed = _distinct(touched // width) * width
        sums.ideal_sectors += -(-packed // _SECTOR)
        if sums.requests > _KEPT_REQUESTS or sums.lanes + sums.masked > _KEPT_LANES:
            return
        self._log.append(
            Kept(
                line=place[1],
                op=op,
                buffer=buffer.name,
                size=buffer.high - buffer.low,
                width=width,
                program=program,
                occurrence=sums.requests - 1,
                order=len(self._log),
                numbers=lanes.numbers,
                inside=lanes.inside,
                off=lanes.off,
                outside=lanes.outside,
            )
        )

    def _outside(
        self,
        place: tuple[str, int],
        op: Op,
        buffer: Buffer,
        lanes: _Lanes,
        program: Triple,
    ) -> None:
        index = int(lanes.outside.reshape(-1)[0]) // buffer.element
        elements = (buffer.high - buffer.low) // buffer.element
        mend = (
            "let the mask turn off the lanes that have no element, or, where it does, "
            "check the address"
            if lanes.inside.size
            else "no lane has an element there, so check where this program's begin"
        )
        self._problem(
            ("out of bounds", *place, op, buffer.name),
            program,
            index,
            lanes.outside.size,
            f"{_DID[op]} {buffer.name}[{index}], outside of {buffer.name}, which has "
            f"{elements} elements: {mend}",
        )

    def _no_tensor(
        self, place: tuple[str, int], op: Op, count: int, program: Triple
    ) -> None:
        self._problem(
            ("out of bounds", *place, op, ""),
            program,
            None,
            count,
            f"{_DID[op]} an address of no tensor: pass the tensor to the kernel",
        )

    def _written(
        self,
        place: tuple[str, int],
        op: Op,
        number: int,
        width: int,
        offsets: np.ndarray,
        program: Triple,
    ) -> None:
        """Keep account of memory that nobody has written; report who reads it."""
        unknown = self._unknown.get(number)
        if unknown is None or not offsets.size:
            return
        touched = offsets[:, None] + np.arange(width)
        buffer = self._buffers[number]
        if op != "store":
            stale = offsets[unknown[touched].any(axis=1)]
            if stale.size:
                index = int(stale[0]) // buffer.element
                self._problem(
                    ("uninitialised read", *place, op, buffer.name),
                    program,
                    index,
                    stale.size,
                    f"{_DID[op]} {buffer.name}[{index}], which nobody has written: "
                    "store to it first, or begin with a tensor that is filled",
                )
        if op != "load":
            unknown[touched] = False

    def _race(
        self, place: tuple[str, int], number: int, offsets: np.ndarray, program: Triple
    ) -> None:
        """Report who reads what another program of the launch has stored.

        Here the other one came first, and on a GPU nobody does. One that has used an
        atomic may know by it that the other is done.
        """
        stores = self._touches.get((number, "store"))
        if stores is None or program in self._in_order:
            return
        found = stores.stored_by_another(offsets, program)
        if found is not None:
            buffer = self._buffers[number]
            index = found[0] // buffer.element
            self._problem(
                ("race", *place, "load", buffer.name),
                program,
                index,
                1,
                f"reads {buffer.name}[{index}], which program {found[1]} of the same "
                "launch has written, and nothing orders the two: on a GPU programs run "
                "at the same time, and what one adds to an old value can be lost. "
                "Where each adds its part, use tl.atomic_add; otherwise read in a "
                "later launch",
            )

    def _problem(
        self,
        key: tuple[Any, ...],
        program: Triple,
        index: int | None,
        count: int,
        words: str,
    ) -> None:
        known = self.problems.get(key)
        kind, _, line, _, buffer = key
        if known is None and len(self.problems) >= _MOST_PROBLEMS:
            return
        self.problems[key] = Problem(
            kind=kind,
            lines=(line,) if known is None else known.lines,
            block=program if known is None else known.block,
            threads=(),
            buffer=buffer or None,
            index=index if known is None else known.index,
            count=count + (known.count if known else 0),
            message=(
                f"line {line}: program {program} {words}"
                if known is None
                else known.message
            ),
        )

    def report(
        self, name: str, sources: Mapping[str, str] | None = None
    ) -> TritonReport:
        """Return all that was seen."""
        self._end_launch()
        files = dict.fromkeys(
            [*self._extents, *(site[0] for site in self._sums if site[0])]
        )
        texts = {
            file: (sources or {}).get(file) or "".join(linecache.getlines(file))
            for file in files
        }
        return TritonReport(
            lines=tuple(
                _access(site, self._sums[site], texts) for site in _in_order(self._sums)
            ),
            problems=tuple(
                sorted(self.problems.values(), key=lambda p: (p.lines, p.kind))
            ),
            notes=tuple(self.notes.values()),
            kernel=name,
            launches=tuple(self.launches),
            sources=texts,
            extents={file: tuple(own) for file, own in self._extents.items()},
            sharing=tuple(self._sharing),
            products=dict(self._products),
            busiest=self._busiest,
            log=tuple(self._log),
        )


@dataclass(frozen=True)
class _Lanes:
    """Byte offsets in one buffer: of lanes inside of it, off, and outside."""

    inside: np.ndarray
    off: np.ndarray
    outside: np.ndarray
    numbers: np.ndarray


def _outermost(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Return the buffers by address, without those that lie within another."""
    kept: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda b: (b.low, -b.high, b.position)):
        if not kept or buffer.high > kept[-1].high:
            kept.append(buffer)
    return kept


def _distinct(*places: np.ndarray) -> int:
    """Count the different numbers in arrays of whole numbers of one size."""
    if not places[0].size:
        return 0
    low = min(int(each.min()) for each in places)
    span = max(int(each.max()) for each in places) - low + 1
    if span > 16 * places[0].size:
        return int(np.unique(np.concatenate(places)).size)
    # Near one another, as a block's are: to mark them is quicker than to sort them.
    seen = np.zeros(span, bool)
    for each in places:
        seen[each - low] = True
    return int(seen.sum())


def _in_order(sites: Mapping[Site, Any]) -> Sequence[Site]:
    files = {file: at for at, file in enumerate(dict.fromkeys(s[0] for s in sites))}
    return sorted(sites, key=lambda s: (files[s[0]], *s[1:]))


def _access(site: Site, sums: _Sums, texts: Mapping[str, str]) -> ProgramAccess:
    file, line, op, buffer, width = site
    text = texts.get(file, "").splitlines()
    return ProgramAccess(
        line=line,
        op=op,
        buffer=buffer,
        width=width,
        requests=sums.requests,
        lanes=sums.lanes,
        masked=sums.masked,
        outside=sums.outside,
        bytes=sums.lanes * width,
        sectors=sums.sectors,
        ideal_sectors=sums.ideal_sectors,
        source=text[line - 1] if 0 < line <= len(text) else "",
        file=file,
    )
