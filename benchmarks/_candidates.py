"""What is timed: candidates in turn, round after round, and a row for each.

A clock that drifts, or a chip that grows hot, meets every candidate alike; and each is
compared with others in its own round only (``_peers``).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import kernelwright as kw

Row = dict[str, Any]
Times = dict[str, list[float]]


@dataclass(frozen=True)
class Candidate:
    """One thing to time.

    Args:
        name: of its row.
        label: as the chapter prints it.
        run: called with the arguments.
        arguments: tensors, of which each call gets others; and whatever else it takes.
        bytes_moved: that must be read and written; 0 where no one asks for GB/s.
        dtype: of what it reads.
        flops: operations that are due; 0 where no one asks for TFLOP/s.
        peers: names of the candidates that it is compared with.
        facts: more to store of it, such as a shape.
    """

    name: str
    label: str
    run: Callable[..., object]
    arguments: tuple[Any, ...] = ()
    bytes_moved: int = 0
    dtype: str = "float32"
    flops: float = field(default=0, kw_only=True)
    peers: tuple[str, ...] = field(default=(), kw_only=True)
    facts: Mapping[str, Any] = field(default_factory=dict, kw_only=True)


def time_in_turn(
    todo: Sequence[Candidate], rounds: int, seconds: float, warm_ups: int = 0
) -> Times:
    """Time all candidates in rounds; return the median ms of each in every round.

    Args:
        todo: what to time, in turn.
        rounds: how often.
        seconds: of a candidate in a round.
        warm_ups: rounds before, whose times are thrown away.

    Raises:
        ValueError: two candidates have one name, so that their times would mix.
    """
    times: Times = {candidate.name: [] for candidate in todo}
    if len(times) < len(todo):
        names = [candidate.name for candidate in todo]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"two candidates have one name: {', '.join(twice)}")
    for number in range(warm_ups + rounds):
        for candidate in todo:
            timing = kw.bench(
                candidate.run, *candidate.arguments, seconds=seconds, device="cuda"
            )
            if number >= warm_ups:
                times[candidate.name].append(timing.median_ms)
    return times


def row_of(candidate: Candidate, times: Sequence[float]) -> Row:
    """Return what is stored of a candidate that took so many ms, round by round."""
    median = statistics.median(times)
    row: Row = {
        "name": candidate.name,
        "label": candidate.label,
        "dtype": candidate.dtype,
        **candidate.facts,
        "median_ms": median,
        "low_ms": min(times),
        "high_ms": max(times),
    }
    if candidate.bytes_moved:
        row["bytes"] = candidate.bytes_moved
        row["gbps"] = candidate.bytes_moved / median / 1e6
    if candidate.flops:
        row["flops"] = candidate.flops
        row["tflops"] = candidate.flops / median / 1e9
    return row


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median of one figure over another, each pair of one round."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def short(dtype: torch.dtype) -> str:
    """Name a dtype without its module."""
    return str(dtype).removeprefix("torch.")
