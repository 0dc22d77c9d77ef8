"""What a traced launch did to memory: the report and the pieces that it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kernelwright.errors import TraceProblem

if TYPE_CHECKING:
    from kernelwright.trace.log import RequestLog

Space = Literal["global", "shared", "local", "constant"]
Op = Literal["load", "store", "atomic", "async copy"]
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class LineAccess:
    """One way in which a source line touches memory, over all traced blocks.

    Args:
        line: 1-based line of the source; 0 where it could not be found.
        space: ``global``, ``shared`` or ``constant``.
        op: ``load``, ``store``, ``atomic`` or ``async copy``.
        width: bytes that each lane asks for.
        requests: how many times a warp did it.
        sectors: 32-byte sectors of global memory that these requests touched.
        sectors_per_request, ideal_sectors_per_request: the ideal packs the same lanes'
            bytes without gaps.
        wavefronts: passes over the 32 banks of shared memory.
        wavefronts_per_request, ideal_wavefronts_per_request: likewise.
        lanes: active lanes per request, on average.
        bytes: what the lanes asked for.
        source: the line's text.
        merges: nvcc may join this access with its neighbours, so that a GPU counts
            fewer requests.
        text: one sentence that says all this.
        buffer: name of the parameter or of the shared variable, where known.
        repeats: requests for what the warp had just read here, with nothing stored in
            between: nvcc may read it once and keep it.
        uneven: in a loop that lanes of a warp leave in different rounds: nvcc may run
            several rounds at a time (as it does not behind ``#pragma unroll 1``), and
            lanes then meet in other rounds than here.
    """

    line: int
    space: Space
    op: Op
    width: int
    requests: int
    sectors: int
    sectors_per_request: float
    ideal_sectors_per_request: float
    wavefronts: int
    wavefronts_per_request: float
    ideal_wavefronts_per_request: float
    lanes: float
    bytes: int
    source: str
    merges: bool
    text: str
    buffer: str | None
    repeats: int = 0
    uneven: bool = False


@dataclass(frozen=True)
class Problem:
    """Something that a kernel must not do, seen in a traced launch.

    Args:
        kind: ``race``, ``out of bounds``, ``misaligned``, ``uninitialised read``,
            ``divergent barrier``, ``absent lane``, ``deadlock``, ``early exit``,
            ``timeout``, ``assert``, ``unmapped access``, ``trap``, …
            A barrier that some threads went past, to where all come behind it, is
            divergent; where they returned on a way of their own it is an early exit,
            which a GPU counts as an arrival.
        lines: the source lines that take part, in order.
        block: index of the block in which it was first seen.
        threads: indices of the threads that took part then.
        buffer: parameter or shared variable, where known.
        index: element of it, counted in the parameter's own type; else None.
        count: how often it was seen.
        message: one paragraph that says what happened and how to mend it.
    """

    kind: str
    lines: tuple[int, ...]
    block: Triple
    threads: tuple[Triple, ...]
    buffer: str | None
    index: int | None
    count: int
    message: str


class HasProblems:
    """What a report of any kernel language is asked: was there a problem?"""

    kernel: str
    problems: tuple[Problem, ...]

    def assert_clean(self) -> None:
        """Raise if a kernel did anything that it must not.

        Raises:
            TraceProblem: with every problem in its message.
        """
        if self.problems:
            count = len(self.problems)
            listed = "\n".join(f"  {p.message}" for p in self.problems)
            raise TraceProblem(
                f"{self.kernel}: the trace found {count} problem{'s' * (count > 1)}\n"
                f"{listed}",
                self.problems,
            )


@dataclass(frozen=True)
class Totals:
    """All requests of one kind together."""

    requests: int = 0
    sectors: int = 0
    wavefronts: int = 0
    bytes: int = 0

    @property
    def sectors_per_request(self) -> float:
        """32-byte sectors per request, on average."""
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def wavefronts_per_request(self) -> float:
        """Passes over the banks per request, on average."""
        return self.wavefronts / self.requests if self.requests else 0.0


@dataclass(frozen=True)
class Request:
    """One warp's request, whole: for pictures.

    Args:
        line: of the source.
        space, op: as in ``LineAccess``.
        block: index of the block.
        warp: number of the warp in its block.
        occurrence: how often the warp had done this access since it last met, from 0.
        width: bytes a lane.
        lanes: of each active lane its number, the thread's index, the buffer and the
            byte offset in it.
        order: grows with time within a warp; warps run one after another.
    """

    line: int
    space: Space
    op: Op
    block: Triple
    warp: int
    occurrence: int
    width: int
    lanes: list[tuple[int, Triple, str | None, int]]
    order: int = 0


@dataclass(frozen=True)
class Sharing:
    """How many touched the same elements of one parameter's memory in one way.

    Args:
        buffer: the parameter's name.
        position: of the parameter, from 0.
        op: ``load`` or ``store``.
        elements: how many it has.
        threads, blocks: how many touched its first element, its last and those watched
            between. Triton's programs have no threads: they are the blocks.
        index: of the first element that several stored, where there is one.
        line: of a store that met another there.
        index_threads, index_blocks: how many stored it; 0 where there is none.
    """

    buffer: str
    position: int
    op: Op
    elements: int
    threads: int
    blocks: int
    index: int = 0
    line: int = 0
    index_threads: int = 0
    index_blocks: int = 0


@dataclass(frozen=True)
class TraceReport(HasProblems):
    """What a launch did to memory, line by line.

    Args:
        lines: accesses by line; within a line global before shared.
        problems: what the kernel must not do; empty for a clean one.
        kernel: its name.
        grid, block: of the launch.
        blocks_traced, blocks_total: how many blocks ran, and how many there are.
        source: the kernel's text.
        unique_sectors: different 32-byte sectors of global memory that were touched.
        flops: of the whole launch, where declared.
        by_block: what a block does together, on average, by name: ``barriers``;
            ``shuffles`` of all its warps, of which a group's ``reduce`` is one;
            likewise ``matrix products`` on tensor cores (``mma.sync``, or WMMA's
            ``mma_sync``, of which the machine makes two) and ``ldmatrix``;
            ``bytes under way at a product``, of asynchronous copies, on average.
        sharing: of each parameter's memory, what several threads touched alike.
        printed: what the kernel's printf wrote.
        log: the whole requests behind ``accesses``.
    """

    lines: tuple[LineAccess, ...]
    problems: tuple[Problem, ...]
    kernel: str
    grid: Triple
    block: Triple
    blocks_traced: int
    blocks_total: int
    source: str
    unique_sectors: int = 0
    flops: int | None = None
    by_block: Mapping[str, float] = field(default_factory=dict)
    sharing: tuple[Sharing, ...] = ()
    printed: str = ""
    log: RequestLog | None = field(default=None, repr=False, compare=False)

    def __getattr__(self, name: str) -> float:
        """Return what a block does together by its name, such as ``barriers``.

        Raises:
            AttributeError: nothing of that name is counted.
        """
        by_block = vars(self).get("by_block", {})
        if name not in by_block:
            counted = ", ".join(by_block) or "nothing"
            raise AttributeError(f"no trace has {name!r}; of a block: {counted}")
        return float(by_block[name])

    @property
    def global_load(self) -> Totals:
        """All loads from global memory, asynchronous copies among them."""
        return self._totals("global", ("load", "async copy"))

    @property
    def global_store(self) -> Totals:
        """All stores to global memory; atomics are not among them."""
        return self._totals("global", ("store",))

    @property
    def shared_load(self) -> Totals:
        """All loads from shared memory."""
        return self._totals("shared", ("load",))

    @property
    def shared_store(self) -> Totals:
        """All stores to shared memory by the threads themselves."""
        return self._totals("shared", ("store",))

    @property
    def bytes_requested(self) -> int:
        """Bytes of global memory that the lanes asked for, counted each time."""
        return sum(a.bytes for a in self.lines if a.space == "global")

    @property
    def arithmetic_intensity(self) -> float | None:
        """FLOPs for each byte of the sectors touched, each sector counted once."""
        if self.flops is None or not self.unique_sectors:
            return None
        return self.flops / (32 * self.unique_sectors)

    def accesses(
        self,
        line: int | None = None,
        space: Space | None = None,
        limit: int | None = None,
    ) -> list[Request]:
        """Return whole requests in the order in which they were made.

        The first requests of each access are kept, 256 a worker.

        Args:
            line: only those of this line.
            space: only those to this memory.
            limit: at most so many.
        """
        return self.log.requests(line, space, limit) if self.log else []

    def _totals(self, space: Space, ops: tuple[Op, ...]) -> Totals:
        chosen = [a for a in self.lines if a.space == space and a.op in ops]
        return Totals(
            sum(a.requests for a in chosen),
            sum(a.sectors for a in chosen),
            sum(a.wavefronts for a in chosen),
            sum(a.bytes for a in chosen),
        )

    def __str__(self) -> str:
        from kernelwright.trace.terminal import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from kernelwright.trace.page import as_html

        return as_html(self)
