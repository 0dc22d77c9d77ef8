"""What a traced Triton launch did to memory: the report and its pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

from kernelwright.trace.report import (
    HasProblems,
    Op,
    Problem,
    Request,
    Sharing,
    Space,
    Triple,
)

# What a trace counts beside accesses, as an exercise asks for it.
PRODUCTS = "multiply-adds of tl.dot"
WIDE_PRODUCTS = "multiply-adds of operands wider than 16 bits"
BUSIEST_PROGRAM = "bytes of the busiest program"
AVERAGE_PROGRAM = "bytes of the average program"


@dataclass(frozen=True)
class ProgramAccess:
    """One way in which a source line touches memory, over all programs.

    Args:
        line: 1-based line of its file; 0 where it could not be found.
        op: ``load``, ``store`` or ``atomic``.
        buffer: the parameter whose memory it is.
        width: bytes of each lane.
        requests: how often a program did it.
        lanes: that took part, over all these times.
        masked: lanes that a mask turned off.
        outside: lanes outside of every tensor, which were kept from memory.
        bytes: what the lanes moved.
        sectors: 32-byte sectors of global memory, counted each time anew.
        ideal_sectors: that the same bytes would take without gaps.
        source: the line's text.
        file: where the line stands.
    """

    line: int
    op: Op
    buffer: str
    width: int
    requests: int
    lanes: int
    masked: int
    outside: int
    bytes: int
    sectors: int
    ideal_sectors: int
    source: str
    file: str

    @property
    def text(self) -> str:
        """One sentence that says all this."""
        verb = {"load": "reads", "store": "writes"}.get(self.op, "updates")
        off = f", {self.masked:,} masked off" if self.masked else ""
        wild = f", {self.outside:,} outside of it" if self.outside else ""
        return (
            f"{verb} {self.buffer}, {self.width} bytes a lane: {self.lanes:,} lanes"
            f"{off}{wild}; {self.sectors:,} sectors, ideal {self.ideal_sectors:,}"
        )


@dataclass(frozen=True)
class ProgramRequest(Request):
    """One program's block of addresses, whole: for pictures.

    As ``Request``, with the program's index for the block's and no warps.

    Args:
        buffer: the parameter whose memory it is, and ``size`` its bytes.
        off: byte offsets of the lanes that a mask turned off.
        outside: of those that were kept from memory outside of it.
    """

    buffer: str = ""
    size: int = 0
    off: Sequence[int] = ()
    outside: Sequence[int] = ()


@dataclass(frozen=True, eq=False)
class Kept:
    """A request as it is kept: byte offsets in arrays, a few bytes a lane.

    Args:
        line, op, buffer, size, width, program, occurrence, order: as in the request.
        numbers: of the lanes that took part, and ``inside`` their offsets.
        off, outside: offsets of the others.
    """

    line: int
    op: Op
    buffer: str
    size: int
    width: int
    program: Triple
    occurrence: int
    order: int
    numbers: np.ndarray
    inside: np.ndarray
    off: np.ndarray
    outside: np.ndarray

    def request(self) -> ProgramRequest:
        """Return it lane by lane."""
        lanes = zip(self.numbers.tolist(), self.inside.tolist(), strict=True)
        return ProgramRequest(
            line=self.line,
            space="global",
            op=self.op,
            block=self.program,
            warp=0,
            occurrence=self.occurrence,
            width=self.width,
            lanes=[(lane, (0, 0, 0), self.buffer, at) for lane, at in lanes],
            order=self.order,
            buffer=self.buffer,
            size=self.size,
            off=self.off.tolist(),
            outside=self.outside.tolist(),
        )


@dataclass(frozen=True)
class Launch:
    """One launch that was traced: the kernel's name and its grid."""

    kernel: str
    grid: Triple


class Busiest(NamedTuple):
    """How a launch's work is shared out: the launch that moves most.

    Args:
        most: bytes that one program moves, of the one that moves most.
        all: bytes that all of them move.
        programs: how many there are.
    """

    most: int
    all: int
    programs: int

    @property
    def average(self) -> int:
        """Bytes that a program moves on average."""
        return self.all // max(1, self.programs)


@dataclass(frozen=True)
class TritonReport(HasProblems):
    """What Triton kernels did to memory, line by line.

    Args:
        lines: accesses by line.
        problems: what a kernel must not do; empty for a clean one. The ``block`` of a
            problem is the program's index.
        notes: where Triton's interpreter is known to differ from a GPU.
        kernel: name of what was traced.
        launches: the launches, in order.
        sources: the text of each file that a line is in.
        extents: of each file the first and last lines of the kernels.
        sharing: of each launch and parameter, what several programs touched alike.
        products: multiply-adds of all ``tl.dot``, by the bits of the wider operand.
        busiest: the program that moved most, of the launch that did.
        log: whole requests, the first of each access.
    """

    lines: tuple[ProgramAccess, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    kernel: str
    launches: tuple[Launch, ...]
    sources: Mapping[str, str] = field(repr=False)
    extents: Mapping[str, tuple[tuple[int, int], ...]] = field(repr=False)
    sharing: tuple[Sharing, ...] = field(default=(), repr=False)
    products: Mapping[int, int] = field(default_factory=dict)
    busiest: Busiest = field(default_factory=lambda: Busiest(0, 0, 0))
    log: tuple[Kept, ...] = field(default=(), repr=False, compare=False)

    @property
    def programs(self) -> int:
        """How many programs ran, in all launches."""
        return sum(x * y * z for x, y, z in (made.grid for made in self.launches))

    @property
    def source(self) -> str:
        """The text that the lines are counted in; the first, if there are several."""
        return next(iter(self.sources.values()), "")

    @property
    def bytes_requested(self) -> int:
        """Bytes that the lanes moved, counted each time."""
        return sum(access.bytes for access in self.lines)

    def accesses(
        self,
        line: int | None = None,
        space: Space | None = None,
        limit: int | None = None,
    ) -> list[ProgramRequest]:
        """Return whole requests in the order in which they were made.

        Of each access the first 4,096 requests are kept, and no more than 262,144
        lanes of them.

        Args:
            line: only those of this line.
            space: only those to this memory; all that there is is ``global``.
            limit: at most so many.
        """
        if space not in (None, "global"):
            return []
        found = (kept for kept in self.log if line in (None, kept.line))
        return [kept.request() for kept in islice(found, limit)]

    def touched_by(self, buffer: str, op: str = "") -> dict[int, tuple[Triple, ...]]:
        """Say which programs touched each element of a buffer, in order.

        Args:
            buffer: the parameter's name.
            op: only ``load``, ``store`` or ``atomic``.
        """
        found: dict[int, dict[Triple, None]] = {}
        for kept in self.log:
            if kept.buffer == buffer and kept.op.startswith(op):
                for element in np.unique(kept.inside // kept.width).tolist():
                    found.setdefault(element, {})[kept.program] = None
        return {element: tuple(found[element]) for element in sorted(found)}

    def __str__(self) -> str:
        from kernelwright.trace.triton.terminal import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from kernelwright.trace.triton.page import as_html

        return as_html(self)
