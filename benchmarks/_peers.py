"""What candidates are compared with: copies, each other, torch eager and compiled."""

from __future__ import annotations

import itertools
import statistics
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import torch

from benchmarks._candidates import (
    Candidate,
    Row,
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


def beside_copies(
    todo: Sequence[Candidate],
    rounds: int,
    seconds: float = 0.03,
    *,
    peer_key: str = "peer",
    quiet: bool = False,
) -> tuple[list[Row], float]:
    """Time candidates that move bytes; return a row each, and the copy's GB/s.

    ``ratio`` is the bandwidth over that of a copy in the same round: the copy of as
    many bytes, or of the nearest number of them. Where a candidate has peers, their
    best bandwidth of each round is what ``peer_key`` is over.

    Args:
        todo: the candidates, with one copy at least.
        rounds: how often each is timed.
        seconds: of a candidate in a round.
        peer_key: what the comparison with peers is called in the row.
        quiet: whether to print nothing.
    """
    times = time_in_turn(todo, rounds, seconds)
    rates = {c.name: [c.bytes_moved / ms for ms in times[c.name]] for c in todo}
    copies = {c.bytes_moved: c.name for c in todo if _is_copy(c.name)}
    rows = []
    for c in todo:
        row = row_of(c, times[c.name])
        row["ratio"] = median_ratio(rates[c.name], rates[_nearest(copies, c)])
        known = [rates[peer] for peer in c.peers if peer in rates]
        if known:
            best = [max(each) for each in zip(*known, strict=True)]
            row[peer_key] = median_ratio(rates[c.name], best)
        rows.append(row)
        if not quiet:
            print(
                f"{c.label:<52} {row['median_ms']:9.4f} ms {row['gbps']:8.1f} GB/s "
                f"{row['ratio']:6.1%} of copy"
                + (f" {peer_key} {row[peer_key]:.3f}" if known else "")
            )
    quoted = copies[min(copies, key=lambda size: abs(size - QUOTED_BYTES))]
    return rows, statistics.median(rates[quoted]) / 1e6


def _is_copy(name: str) -> bool:
    first, _, rest = name.partition("_")
    return first == "copy" and (not rest or rest.isdigit())


def _nearest(copies: dict[int, str], candidate: Candidate) -> str:
    size = min(copies, key=lambda size: abs(size - candidate.bytes_moved))
    return copies[size]


# --- a library, on the same operands ------------------------------------------------


def beside_peers(
    todo: Sequence[Candidate],
    rounds: int,
    seconds: float,
    *,
    warm_ups: int = 0,
    quiet: bool = False,
) -> list[Row]:
    """Time candidates that compute; return a row each.

    ``ratio`` is the time of the candidate's one peer over its own in the same round.

    Args:
        todo: the candidates, their peers among them.
        rounds: how often each is timed.
        seconds: of a candidate in a round.
        warm_ups: rounds before, whose times are thrown away.
        quiet: whether to print nothing.
    """
    times = time_in_turn(todo, rounds, seconds, warm_ups)
    rows = []
    for c in todo:
        (peer,) = c.peers
        row = row_of(c, times[c.name])
        row |= {"peer": peer, "ratio": median_ratio(times[peer], times[c.name])}
        rows.append(row)
        if quiet:
            continue
        rate = "tflops" if "tflops" in row else "gbps"
        unit = {"tflops": "TFLOP/s", "gbps": "GB/s"}[rate]
        print(
            f"{c.label:<58} {row['median_ms']:9.4f} ms {row[rate]:8.1f} {unit} "
            f"{row['ratio']:6.3f} of {peer}",
            flush=True,
        )
    return rows


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


def backward_in_turn(
    graphs: Iterable[tuple[torch.Tensor, Any, torch.Tensor]],
) -> Callable[[], None]:
    """Return a backward pass through one of several graphs, another at each call.

    No cache then holds what the last call read.

    Args:
        graphs: of each the result, what it was made of, and the result's gradient.
    """
    turn: Iterator[Any] = itertools.cycle(graphs)

    def run() -> None:
        result, given, grad = next(turn)
        torch.autograd.grad(result, given, grad, retain_graph=True)

    return run


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
