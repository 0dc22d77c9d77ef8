"""What a worker says that a trace saw, taken for plain numbers or for nothing.

The learner's code shared the process that speaks here. What has not the form of a
trace is none, and no trace is never a pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from autograder.judge.words import clean
from autograder.worker.wire import Header
from kernelwright.emulator.operations import COUNTED
from kernelwright.trace.report import Sharing

_SPACES = ("global", "shared", "local", "constant")
_OPS = ("load", "store", "atomic", "async copy")
_MOST = 1 << 53


class NoTrace(Exception):
    """What came back is not a trace."""


@dataclass(frozen=True)
class Access:
    """One access of one line, summed over a traced launch."""

    line: int
    space: str
    op: str
    requests: int
    sectors: int
    wavefronts: int
    bytes: int
    ideal_sectors: float
    ideal_wavefronts: float
    buffer: str
    lanes: float = 0.0


@dataclass(frozen=True)
class Found:
    """One thing that a kernel must not do, and where it was seen."""

    kind: str
    lines: tuple[int, ...]
    block: tuple[int, ...]
    threads: tuple[tuple[int, ...], ...]
    buffer: str
    index: int | None
    count: int
    message: str

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {
            "kind": self.kind,
            "lines": list(self.lines),
            "block": list(self.block),
            "threads": [list(thread) for thread in self.threads],
            "buffer": self.buffer,
            "index": self.index,
            "count": self.count,
            "message": self.message,
        }


@dataclass(frozen=True)
class Trace:
    """One traced launch, or one call whose kernels were watched.

    ``by_block`` holds what all threads of a block do together, on average over blocks;
    ``sharing`` which elements several threads, or programs, touched alike; ``own`` what
    a kind of answer counts that has no memory of its own, by its name.
    Notes say where what ran it is known to differ from a GPU.
    """

    accesses: tuple[Access, ...]
    problems: tuple[Found, ...]
    by_block: Mapping[str, float]
    launches: int
    sharing: tuple[Sharing, ...] = ()
    notes: tuple[str, ...] = ()
    own: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def of_run(counted: Mapping[str, float]) -> Trace | None:
        """Make a trace of what a run counted by itself; none of nothing."""
        return Trace((), (), {}, 1, own=counted) if counted else None

    def total(self, metric: str, space: str = "", op: str = "") -> float | None:
        """Return a metric over all accesses of a kind; ``None`` where there are none.

        An asynchronous copy is a load from global memory.
        """
        if metric in self.own:
            return self.own[metric]
        if metric in COUNTED:
            return self.by_block.get(metric, 0.0)
        if metric == "writers":
            return float(max((writers(s) for s in self.overwritten), default=1))
        if metric == "readers":
            return float(max((s.blocks for s in self.read_whole), default=0))
        chosen = self.chosen(space, op)
        if not chosen:
            return None
        return float(sum(_cost(metric, access) for access in chosen))

    @property
    def overwritten(self) -> list[Sharing]:
        """What was stored where another had stored."""
        return [s for s in self.sharing if s.index_blocks]

    @property
    def read_whole(self) -> list[Sharing]:
        """What was loaded of large memory; what is small all may read."""
        loads = [s for s in self.sharing if s.op == "load"]
        largest = max((s.elements for s in loads), default=0)
        return [s for s in loads if 2 * s.elements >= largest]

    def chosen(self, space: str, op: str) -> list[Access]:
        """Return the accesses of a kind that were made."""
        ops = ("load", "async copy") if (space, op) == ("global", "load") else (op,)
        return [
            a for a in self.accesses if a.space == space and a.op in ops and a.requests
        ]

    def worst(self, metric: str, space: str, op: str) -> int:
        """Return the line that adds most to a metric; 0 where none does."""
        if metric == "writers":
            return next((s.line for s in self.overwritten), 0)
        if metric == "readers":
            metric = "bytes"
        lines: dict[int, float] = {}
        for access in self.chosen(space, op):
            more = _cost(metric, access)
            lines[access.line] = lines.get(access.line, 0) + more
        # The earliest of equals.
        return max(lines, key=lambda line: (lines[line], -line)) if lines else 0


def writers(sharing: Sharing) -> int:
    """Return how many stored one element: threads, or programs, or lanes of one."""
    return max(sharing.index_threads, sharing.index_blocks)


def _cost(metric: str, access: Access) -> float:
    """Return what an access adds to a metric.

    A program of Triton's is no warp: what it moves are its lanes' bytes.
    """
    if metric == "moved":
        return 32 * access.sectors if access.sectors else access.bytes
    if metric not in ("bytes", "requests", "wavefronts"):
        raise ValueError(f"no trace counts {metric!r}")
    return float(getattr(access, metric))


def read_trace(answer: Header) -> Trace:
    """Read what a worker sent.

    Raises:
        NoTrace: it is not what a trace looks like.
    """
    accesses = _list(answer.get("lines"), 1000)
    problems = _list(answer.get("problems"), 100)
    return Trace(
        tuple(_access(item) for item in accesses),
        tuple(_found(item) for item in problems),
        _by_block(answer.get("by_block")),
        _count(answer.get("launches")),
        tuple(_sharing(item) for item in _list(answer.get("sharing"), 500)),
        tuple(clean(note, 500) for note in _list(answer.get("notes", []), 10)),
        _own(answer.get("own", {})),
    )


def _own(item: Any) -> dict[str, float]:
    if not isinstance(item, dict):
        raise NoTrace("what else was counted is not an object")
    return {clean(name, 100): float(_count(item[name])) for name in list(item)[:100]}


def _by_block(item: Any) -> dict[str, float]:
    if not isinstance(item, dict):
        raise NoTrace("what blocks do is not an object")
    return {name: _real(item.get(name, 0.0)) for name in COUNTED}


def _access(item: Any) -> Access:
    if not isinstance(item, dict):
        raise NoTrace("an access is not an object")
    space, op = item.get("space"), item.get("op")
    if space not in _SPACES or op not in _OPS:
        raise NoTrace("an access to no memory that there is")
    return Access(
        line=_count(item.get("line")),
        space=space,
        op=op,
        requests=_count(item.get("requests")),
        sectors=_count(item.get("sectors")),
        wavefronts=_count(item.get("wavefronts")),
        bytes=_count(item.get("bytes")),
        ideal_sectors=_real(item.get("ideal_sectors")),
        ideal_wavefronts=_real(item.get("ideal_wavefronts")),
        buffer=clean(item.get("buffer"), 100),
        lanes=_real(item.get("lanes", 0.0)),
    )


def _sharing(item: Any) -> Sharing:
    if not isinstance(item, dict) or item.get("op") not in _OPS:
        raise NoTrace("what threads share is not an object")
    numbers = {
        field.name: _count(item.get(field.name))
        for field in fields(Sharing)
        if field.name not in ("buffer", "op")
    }
    return Sharing(buffer=clean(item.get("buffer"), 100), op=item["op"], **numbers)


def _found(item: Any) -> Found:
    if not isinstance(item, dict):
        raise NoTrace("a problem is not an object")
    index = item.get("index")
    if index is not None and not (type(index) is int and abs(index) < _MOST):
        raise NoTrace("an index is no whole number")
    return Found(
        kind=clean(item.get("kind"), 40) or "problem",
        lines=tuple(_count(line) for line in _list(item.get("lines"), 16)),
        block=_triple(item.get("block")),
        threads=tuple(_triple(t) for t in _list(item.get("threads"), 64)),
        buffer=clean(item.get("buffer"), 100),
        index=index,
        count=_count(item.get("count")),
        message=clean(item.get("message"), 1500),
    )


def _triple(value: Any) -> tuple[int, ...]:
    return tuple(_count(part) for part in _list(value, 3))


def _list(value: Any, most: int) -> Sequence[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise NoTrace("a list is missing or too long")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise NoTrace("a count is no whole number")
    return value


def _real(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise NoTrace("a figure is no number")
    return float(value)
