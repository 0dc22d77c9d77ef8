"""The least that an exercise's work needs, and the counts that hold answers to it.

An author says how often the inputs are read; what that is in bytes, sectors and
requests follows from the case that is counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch

from autograder.exercise import Count, Problem
from kernelwright.emulator.operations import BUSIEST_WARP
from kernelwright.trace.triton.report import PRODUCTS, WIDE_PRODUCTS

Passes = float | Mapping[str, float]

_SECTOR, _WARP, _BANKS = 32, 32, 128


def moves(
    reads: Passes | None = 1,
    writes: Passes | None = 1,
    *,
    width: int | None = None,
    asked: bool = False,
    times: float = 1.05,
    writers: int = 1,
    busiest: float | None = 2.5,
) -> tuple[Count, ...]:
    """Return the counts of a kernel's global memory.

    Args:
        reads: how often it goes over its inputs, by name where they differ (what is not
            named is gone over once); ``None`` where that is free.
        writes: likewise over its outputs.
        width: bytes a lane asks for at once, where less is too little.
        asked: count what lanes ask for, not the sectors that they touch: where each
            thread has a row or a group of its own.
        times: how many times these bytes earn the points.
        writers: how many threads may store one element of an output.
        busiest: how many times the average warp's requests the busiest may make, or
            the average program's bytes; ``None`` where it waits by reading.
    """
    metric = "bytes" if asked else "moved"
    found = []
    for op, passes in (("load", reads), ("store", writes)):
        if passes is not None:
            found += [
                Count(metric, "global", op, passes=passes, times=times),
                # Half a warp may rest where a row ends.
                Count("requests", "global", op, passes=passes, width=width, times=1.9),
            ]
    if busiest is not None:
        # A kernel whose other warps rest moves the same bytes.
        found.append(Count(BUSIEST_WARP, times=busiest))
    return (*found, Count("writers", "global", "store", ideal=writers, times=1))


def shared(store: float, load: float, times: float = 1.05) -> tuple[Count, ...]:
    """Return the counts of shared memory: wavefronts of all stores and of all loads."""
    return (
        Count("wavefronts", "shared", "store", ideal=store, times=times),
        Count("wavefronts", "shared", "load", ideal=load, times=times),
    )


def once_through_shared(size: int, times: float = 1.05) -> tuple[Count, ...]:
    """Return the counts of ``size`` bytes that go through shared memory once."""
    return shared(size / _BANKS, size / _BANKS, times)


def barriers(ideal: float, at_most: float | None = None) -> Count:
    """Return the count of barriers that a block waits at."""
    most = ideal if at_most is None else at_most
    return Count("barriers", ideal=ideal, times=most / ideal if ideal else 1)


def needed(operation: str, least: float) -> Count:
    """Return the count of what each block must do so often or more."""
    return Count(operation, ideal=least, times=None, at_least=least)


IN_16_BITS = Count(
    WIDE_PRODUCTS,
    ideal=0,
    times=1,
    advice="Tensor cores take operands of 16 bits: give tl.dot what was loaded as it "
    "is, and round what was computed with .to(...).",
)
_IN_TILES = (
    "All products belong into tl.dot, which runs on tensor cores, and none is made "
    "that nobody needs."
)


def products(ideal: float, times: float = 1.05) -> tuple[Count, ...]:
    """Return the counts of ``tl.dot``: its multiply-adds, in 16 bits or fewer.

    Args:
        ideal: how many the counted case needs, its tiles taken whole.
        times: how many times the ideal earns the points.
    """
    return (
        Count(PRODUCTS, ideal=ideal, times=times, at_least=ideal, advice=_IN_TILES),
        IN_16_BITS,
    )


def ideal_of(count: Count, problem: Problem) -> float:
    """Return the least that a count needs, from the sizes of a case."""
    if count.ideal is not None:
        return count.ideal
    return sum(
        passes_of(count, name) * _least(count, problem, elements, size)
        for name, elements, size in _tensors(problem, count.op)
    )


def passes_of(count: Count, name: str) -> float:
    """Return how often an argument is gone over."""
    if isinstance(count.passes, Mapping):
        return count.passes.get(name, 1)
    return count.passes


def _tensors(problem: Problem, op: str) -> Iterator[tuple[str, int, int]]:
    """Give name, elements and bytes of an element of what is read, or is written."""
    if op == "store":
        for name, out in problem.outputs.items():
            yield name, math.prod(out.shape), out.dtype.itemsize
        return
    for name, value in problem.arguments.items():
        if isinstance(value, torch.Tensor):
            yield name, value.numel(), value.element_size()


def _least(count: Count, problem: Problem, elements: int, size: int) -> float:
    if count.metric == "bytes":
        return elements * size
    if count.metric == "moved":
        each, unit = _SECTOR / size, _SECTOR
    else:
        each, unit = _WARP * (count.width or size) / size, 1
    pieces = math.ceil(elements / each)
    if count.op == "store" and problem.launch is not None:
        # Of a few results each warp stores its own.
        block = math.ceil(math.prod(problem.launch.block) / _WARP)
        warps = math.prod(problem.launch.grid) * block
        pieces = max(pieces, min(elements, warps))
    return unit * pieces
