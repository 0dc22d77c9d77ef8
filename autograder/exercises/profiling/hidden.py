"""Hidden cases of chapter 3: work, samples, regions and allocations, drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from autograder.drawing import drawn
from autograder.exercise import Case
from autograder.exercises.profiling.arithmetic_intensity import matmul_work, work_case
from autograder.exercises.profiling.peak_memory import memory_case
from autograder.exercises.profiling.profiler import region_case
from autograder.exercises.profiling.shared import timer_case


def _work(generator: torch.Generator) -> Iterator[Case]:
    for size in (2, 4, 8):
        n = drawn(generator, 3, 10**6)
        yield work_case(
            f"{n:,} elements", drawn(generator, 1, 99) * n + 1, 2 * n, n, size
        )
        yield matmul_work(drawn(generator, 7, 5000), size)


def _samples(
    warm_up: tuple[int, int], samples: tuple[int, int]
) -> Callable[[torch.Generator], Iterator[Case]]:
    """Return what draws so many launches, the last numbers left out."""

    def hidden(generator: torch.Generator) -> Iterator[Case]:
        for _ in range(4):
            yield timer_case(drawn(generator, *warm_up), drawn(generator, *samples))

    return hidden


def _regions(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("nested", "nested", "chain", "recursive", "raises"):
        runs = drawn(generator, 6, 16)
        yield region_case(runs, regime, regime)


def _allocations(generator: torch.Generator) -> Iterator[Case]:
    for leak in (0, 1, 0, 1):
        yield memory_case(drawn(generator, 3, 30), leak)


HIDDEN = {
    "arithmetic_intensity": {"hidden": _work},
    "time_kernel": {"hidden": _samples((1, 9), (4, 40))},
    "Profiler": {"hidden": _regions},
    "peak_memory": {"hidden": _allocations},
    "lying_benchmark": {"hidden": _samples((1, 6), (5, 30))},
}
