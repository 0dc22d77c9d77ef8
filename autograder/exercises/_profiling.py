"""What the exercises of chapter 3 share, and known mistakes as code.

A mistake's output is found by running it where answers are run, on a practice GPU: it
is what a learner who writes the same would get, to the last bit.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from autograder.exercise import Arguments, Outputs

STEM = "profiling"
Mistake = Callable[[Arguments], Outputs]


def prelude(adapter: str) -> str:
    """Return the chapter's imports, and what stands between answer and grader."""
    return (
        "import statistics\nfrom contextlib import contextmanager\n\n"
        "import torch\n\nimport kernelwright as kw\n"
        f"from autograder.worker.practice import {adapter} as __adapt__\n"
    )


def draw_int(generator: torch.Generator, low: int, high: int) -> int:
    """Draw a whole number from low to below high."""
    return int(torch.randint(low, high, (), generator=generator))


def whole(arguments: Arguments, name: str) -> int:
    """Return an argument that is a whole number."""
    value = arguments[name]
    assert isinstance(value, int)
    return value


def made_by(
    adapt: Callable[..., Any], names: Sequence[str], code: Callable[..., Any]
) -> Mistake:
    """Return what code gives in the place of an answer."""

    def output(arguments: Arguments) -> Outputs:
        made = adapt(code, *arguments.values())
        pieces = made if isinstance(made, tuple) else (made,)
        return dict(zip(names, pieces, strict=True))

    return output


def durations(
    count: int, warm_up: int, base: float, generator: torch.Generator
) -> torch.Tensor:
    """Draw what each launch takes in ms: slow at first, jitter, a hitch at times."""
    times = base * (1 + 0.04 * torch.rand(count, generator=generator).double())
    times[:warm_up] *= 2 + torch.rand(warm_up, generator=generator).double()
    hitch = torch.rand(count, generator=generator) < 0.2
    hitch[:warm_up] = False
    times[hitch] *= 3 + torch.rand(int(hitch.sum()), generator=generator).double()
    return times


# --- timers that lie --------------------------------------------------------------

Launch = Callable[[], None]


def _pair(gpu: Any, launch: Launch) -> tuple[Any, Any]:
    start, stop = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
    start.record()
    launch()
    stop.record()
    return start, stop


def _elapsed(gpu: Any, pairs: list[tuple[Any, Any]]) -> list[float]:
    gpu.synchronize()
    return [start.elapsed_time(stop) for start, stop in pairs]


def samples_of(
    gpu: Any,
    launch: Launch,
    flush: Launch,
    warm_up: int,
    samples: int,
    *,
    cold: bool = True,
    wait: bool = False,
) -> list[float]:
    """Time by events, flushed or not, waiting after each sample or not."""
    for _ in range(warm_up):
        launch()
    pairs = []
    for _ in range(samples):
        if cold:
            flush()
        pairs.append(_pair(gpu, launch))
        if wait:
            gpu.synchronize()
    return _elapsed(gpu, pairs)


def by_clock(wait: bool) -> Callable[..., float]:
    """Return a timer that reads the CPU's clock."""

    def timer(
        gpu: Any, launch: Launch, flush: Launch, warm_up: int, samples: int
    ) -> float:
        for _ in range(warm_up):
            launch()
        found = []
        for _ in range(samples):
            flush()
            if wait:
                gpu.synchronize()
            start = gpu.perf_counter()
            launch()
            if wait:
                gpu.synchronize()
            found.append(float(gpu.perf_counter() - start) * 1e3)
        return statistics.median(found)

    return timer


def by_events(
    sum_up: Callable[[list[float]], float], **options: bool
) -> Callable[..., float]:
    """Return a timer by events that sums its samples up in some way."""

    def timer(
        gpu: Any, launch: Launch, flush: Launch, warm_up: int, samples: int
    ) -> float:
        return sum_up(samples_of(gpu, launch, flush, warm_up, samples, **options))

    return timer


def without_warm_up(
    gpu: Any, launch: Launch, flush: Launch, warm_up: int, samples: int
) -> float:
    """Time the first launches."""
    return statistics.median(samples_of(gpu, launch, flush, 0, samples))


def flush_counted(
    gpu: Any, launch: Launch, flush: Launch, warm_up: int, samples: int
) -> float:
    """Flush between the two events."""

    def both() -> None:
        flush()
        launch()

    for _ in range(warm_up):
        launch()
    return statistics.median(_elapsed(gpu, [_pair(gpu, both) for _ in range(samples)]))


# --- comparisons that lie ---------------------------------------------------------


def compare_with(
    sum_up_old: Callable[[list[float]], float],
    sum_up_new: Callable[[list[float]], float],
    *,
    warm: bool = True,
    flush_old: bool = True,
    flush_new: bool = True,
) -> Callable[..., float]:
    """Return a comparison with some of its lies mended and some not."""

    def compare(
        gpu: Any, old: Launch, new: Launch, flush: Launch, warm_up: int, samples: int
    ) -> float:
        turns = warm_up if warm else 0
        slow = samples_of(gpu, old, flush, turns, samples, cold=flush_old, wait=True)
        fast = samples_of(gpu, new, flush, turns, samples, cold=flush_new, wait=True)
        return sum_up_old(slow) / sum_up_new(fast)

    return compare


# --- memory that is counted wrongly -----------------------------------------------


def memory_counted(
    *,
    warm: bool = True,
    reset: bool = True,
    baseline: bool = True,
    drop: bool = True,
    at_the_end: bool = False,
) -> Callable[..., tuple[int, int]]:
    """Return a memory measurement with one step left out."""

    def measure(gpu: Any, fn: Callable[[], object]) -> tuple[int, int]:
        if warm:
            fn()
        before = gpu.memory_allocated()
        if reset:
            gpu.reset_peak_memory_stats()
        result = fn()
        peak = gpu.max_memory_allocated()
        if at_the_end:
            peak = gpu.memory_allocated()
        if drop:
            del result
        kept = gpu.memory_allocated()
        if not baseline:
            before = 0
        return peak - before, kept - before

    return measure
