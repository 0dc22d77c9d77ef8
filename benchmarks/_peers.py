"""What candidates are compared with: copies, each other, torch eager and compiled."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from benchmarks._candidates import (
    Candidate,
    Row,
    Times,
    median_ratio,
    row_of,
    short,
    time_in_turn,
)

QUOTED_BYTES = 2**30
"""Bytes read and written by the copy whose speed is stored as the machine's."""


# --- copies: what moving the same bytes costs ---------------------------------------


def copy_of(x: torch.Tensor, name: str) -> Candidate:
    """Name torch's copy of x; ``copy`` or ``copy_`` and a number makes it a measure."""
    label = f"copy, torch, {x.nbytes / 2**20:.0f} MiB"
    pair = (torch.empty_like(x), x)
    return Candidate(
        name, label, torch.Tensor.copy_, pair, 2 * x.nbytes, short(x.dtype)
    )


def copy_gbps(rows: Sequence[Row]) -> float:
    """Return the speed of the copy that is stored as the machine's."""
    copies = (row for row in rows if _is_copy(row["name"]))
    quoted = min(copies, key=lambda row: abs(row["bytes"] - QUOTED_BYTES))
    return float(quoted["gbps"])


def _is_copy(name: str) -> bool:
    first, _, rest = name.partition("_")
    return first == "copy" and (not rest or rest.isdigit())


# --- each beside its peers, in the same round ---------------------------------------


def beside(
    todo: Sequence[Candidate],
    rounds: int,
    seconds: float = 0.03,
    *,
    warm_ups: int = 0,
    key: str = "peer",
) -> list[Row]:
    """Time candidates in turn; return a row each, as ``rows_of`` does."""
    return rows_of(todo, time_in_turn(todo, rounds, seconds, warm_ups), key)


def rows_of(todo: Sequence[Candidate], times: Times, key: str = "peer") -> list[Row]:
    """Return a row for each candidate, and print it.

    Where copies are among the candidates, ``ratio`` is a candidate's bandwidth over
    that of the copy of as many bytes, or of the nearest number of them; and ``key`` its
    bandwidth over the best of its peers. Elsewhere ``ratio`` is the time of its one
    peer, whose name is stored, over its own.
    """
    named = {c.name: c for c in todo}
    copies = [c for c in todo if _is_copy(c.name)]
    rows = []
    for c in todo:
        row = row_of(c, times[c.name])
        peers = [named[name] for name in c.peers if name in named]
        if copies:
            size = c.bytes_moved
            near = min(copies, key=lambda copy: abs(copy.bytes_moved - size))
            row["ratio"] = _bandwidth_over(c, [near], times)
            if peers:
                row[key] = _bandwidth_over(c, peers, times)
        else:
            (peer,) = c.peers
            row |= {"peer": peer, "ratio": median_ratio(times[peer], times[c.name])}
        rows.append(row)
        said = f"{c.label:<58} {row['median_ms']:9.4f} ms"
        for rate, unit in (("tflops", "TFLOP/s"), ("gbps", "GB/s")):
            said += f" {row[rate]:8.1f} {unit}" if rate in row else ""
        said += f" {row['ratio']:6.3f} of {'copy' if copies else row['peer']}"
        said += f" {key} {row[key]:.3f}" if copies and peers else ""
        print(said, flush=True)
    return rows


def _bandwidth_over(c: Candidate, others: Sequence[Candidate], times: Times) -> float:
    """Return a candidate's bandwidth over the best of others in the same round."""
    due = [
        [c.bytes_moved / other.bytes_moved * ms for ms in times[other.name]]
        for other in others
    ]
    best = [min(each) for each in zip(*due, strict=True)]
    return median_ratio(best, times[c.name])


# --- torch: eager, compiled, and the formula written out ----------------------------


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch.compile's version of a function.

    Each shape and dtype is compiled for itself. Past its limit of recompilations
    torch would go back to eager without a word, and the peer would be a weak one.
    """
    warnings.simplefilter("ignore")  # inductor's advice
    torch._dynamo.config.recompile_limit = 256
    torch._dynamo.config.accumulated_recompile_limit = 1024
    made: Callable[..., Any] = torch.compile(function, dynamic=False)
    return made


Versions = Mapping[str, tuple[str, Callable[..., Any]]]
"""Of one row: what is behind its name, what its label begins with, and what runs."""


def torchs(function: Callable[..., Any], label: str = "") -> Versions:
    """Return torch's versions of a function: eager, and compiled."""
    return {
        "_eager": (f"torch eager{label}", function),
        "_compile": (f"torch.compile{label}", compiled(function)),
    }


def each(
    versions: Versions, name: str, label: str, *fields: Any, **more: Any
) -> Iterator[Candidate]:
    """Name every version of a row; the label has ``{}`` where a version's own stands.

    All other fields they share: as ``Candidate`` has them, from the arguments on.
    """
    for suffix, (words, run) in versions.items():
        yield Candidate(name + suffix, label.format(words), run, *fields, **more)


Graph = tuple[tuple[torch.Tensor, ...], torch.Tensor]
"""Operands that want a gradient, and the gradient of the result."""


def backwards(versions: Versions, drawn: Callable[[], Graph]) -> Versions:
    """Return the versions' ways back."""
    return {
        suffix: (words, backward_in_turn(function, drawn))
        for suffix, (words, function) in versions.items()
    }


def backward_in_turn(
    function: Callable[..., Any], drawn: Callable[[], Graph]
) -> Callable[[], None]:
    """Return a backward pass through one of two graphs, the other at each call.

    No cache then holds what the last call read.
    """
    graphs = []
    for _ in range(2):
        given, slope = drawn()
        graphs.append((function(*given), given, slope))
    turn = itertools.cycle(graphs)

    def run() -> None:
        result, given, slope = next(turn)
        torch.autograd.grad(result, given, slope, retain_graph=True)

    return run


def there_and_back(
    function: Callable[..., Any], given: Sequence[torch.Tensor], slope: torch.Tensor
) -> Callable[[], Any]:
    """Return a forward pass and the backward pass through it."""
    return lambda: torch.autograd.grad(function(*given), given, slope)


def compare_with_torch(rows: Sequence[Row]) -> None:
    """Add to each of our rows how it stands to torch's own.

    ``of_eager``, ``of_peer`` and ``of_formula`` are the times of eager, of the better
    of eager and torch.compile, and of the formula written out, over the row's own.
    Theirs have our row's name with ``_eager``, ``_compile`` and ``_formula`` behind.
    """
    times = {row["name"]: row["median_ms"] for row in rows}
    for row in rows:
        name, own = row["name"], row["median_ms"]
        if f"{name}_eager" not in times:
            continue
        eager = times[f"{name}_eager"]
        row["of_eager"] = eager / own
        row["of_peer"] = min(eager, times[f"{name}_compile"]) / own
        if f"{name}_formula" in times:
            row["of_formula"] = times[f"{name}_formula"] / own
        print(
            f"{name:<48} {row['of_eager']:5.2f} x eager, {row['of_peer']:5.2f} x the "
            "better peer"
        )
