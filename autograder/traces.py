"""What a worker says that a trace saw, taken for plain numbers or for nothing.

The learner's code shared the process that speaks here. What has not the form of a
trace is none, and no trace is never a pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autograder.words import clean
from autograder.worker.wire import BY_BLOCK, Header

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
    ``own`` what a kind of answer counts that has no memory of its own, by its name.
    Notes say where what ran it is known to differ from a GPU.
    """

    accesses: tuple[Access, ...]
    problems: tuple[Found, ...]
    by_block: Mapping[str, float]
    launches: int
    notes: tuple[str, ...] = ()
    own: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def of_run(counted: Mapping[str, float]) -> Trace | None:
        """Make a trace of what a run counted by itself; none of nothing."""
        return Trace((), (), {}, 1, own=counted) if counted else None

    def total(self, metric: str, space: str, op: str) -> float | None:
        """Return a metric over all accesses of a kind; ``None`` where there are none.

        An asynchronous copy is a load from global memory.
        """
        if metric in self.own:
            return self.own[metric]
        if metric in BY_BLOCK:
            return self.by_block.get(metric, 0.0)
        ops = ("load", "async copy") if (space, op) == ("global", "load") else (op,)
        chosen = [a for a in self.accesses if a.space == space and a.op in ops]
        requests = sum(a.requests for a in chosen)
        if not requests:
            return None
        if metric == "bytes":
            return float(sum(a.bytes for a in chosen))
        if metric == "sectors_per_request":
            return sum(a.sectors for a in chosen) / requests
        if metric == "wavefronts_per_request":
            return sum(a.wavefronts for a in chosen) / requests
        if metric == "lanes_per_request":
            return sum(a.lanes * a.requests for a in chosen) / requests
        raise ValueError(f"no trace counts {metric!r}")

    def worst(self, metric: str, space: str, op: str) -> int:
        """Return the line that adds most to a metric; 0 where none does."""
        chosen = [a for a in self.accesses if a.space == space and a.op == op]
        if metric == "sectors_per_request":
            weights = [(a.sectors / max(1, a.requests), a.line) for a in chosen]
        elif metric == "wavefronts_per_request":
            weights = [(a.wavefronts / max(1, a.requests), a.line) for a in chosen]
        elif metric == "lanes_per_request":
            # The lanes that rest, over all requests.
            weights = [((32 - a.lanes) * a.requests, a.line) for a in chosen]
        else:
            weights = [(float(a.bytes), a.line) for a in chosen]
        # The earliest of equals.
        return max(weights, key=lambda w: (w[0], -w[1]))[1] if weights else 0


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
        tuple(clean(note, 500) for note in _list(answer.get("notes", []), 10)),
    )


def _by_block(item: Any) -> dict[str, float]:
    if not isinstance(item, dict):
        raise NoTrace("what blocks do is not an object")
    return {name: _real(item.get(name, 0.0)) for name in BY_BLOCK}


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
