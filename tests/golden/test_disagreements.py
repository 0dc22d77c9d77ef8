"""The reasons why a GPU's counters differ from the trace's, held to the numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.golden.cases import BY_NAME
from tests.golden.test_trace import KERNELS, traced

WARP = 32
SECTOR = 32


def as_nvcc_runs_it(trips: int, chunks: tuple[int, ...]) -> list[int | None]:
    """Say which iteration a lane is in at each step; None where it waits.

    The loop runs in chunks: so many iterations at once while as many are left, then
    half as many, and so on. A warp's lanes go through each chunk together.
    """
    steps: list[int | None] = []
    done = 0
    for chunk in chunks:
        takes = trips - done >= chunk
        steps += [done + i if takes else None for i in range(chunk)]
        done += chunk * takes
    return steps


def sectors_of(
    lanes: Iterable[list[int | None]], address: Callable[[int, int], int]
) -> tuple[int, int]:
    """Count sectors and requests of one load in the loop, for one warp."""
    sectors = requests = 0
    for step in zip(*lanes, strict=True):
        touched = {
            address(lane, k) // SECTOR for lane, k in enumerate(step) if k is not None
        }
        sectors += len(touched)
        requests += bool(touched)
    return sectors, requests


def test_chunks_of_four_two_and_one_give_the_gpus_uneven_loop_exactly():
    sectors = requests = 0
    for first in range(0, 4096, WARP):
        lanes = [
            as_nvcc_runs_it(i % 7 + 1, (4, 2, 1)) for i in range(first, first + WARP)
        ]
        found = sectors_of(
            lanes, lambda lane, k, first=first: (first + lane + 32 * k) % 4096 * 4
        )
        sectors, requests = sectors + found[0], requests + found[1]
    counters = KERNELS["uneven_loop"]["counters"]
    assert sectors == counters["global_load_sectors"]
    assert requests == counters["global_load_requests"]


def test_chunks_of_eight_four_two_and_one_give_the_gpus_sparse_rows():
    start, column, *_ = BY_NAME["sparse_rows"].draw()
    sectors = requests = 0
    for first in range(0, 1024, WARP):
        rows = range(first, first + WARP)
        lanes = [
            as_nvcc_runs_it(int(start[r + 1] - start[r]), (8, 4, 2, 1)) for r in rows
        ]

        def entry(lane: int, k: int, first: int = first) -> int:
            return int(start[first + lane]) + k

        def gathered(lane: int, k: int) -> int:
            return 4 * int(column[entry(lane, k)])

        # start[row], start[row + 1]; value[k], column[k], x[column[k]].
        parts = [(4, 1), (5, 1)]
        parts += [sectors_of(lanes, lambda lane, k: 4 * entry(lane, k))] * 2
        parts += [sectors_of(lanes, gathered)]
        sectors += sum(part[0] for part in parts)
        requests += sum(part[1] for part in parts)
    counters = KERNELS["sparse_rows"]["counters"]
    assert requests == counters["global_load_requests"]
    assert abs(sectors / counters["global_load_sectors"] - 1) < 0.01


def test_the_search_differs_by_the_loads_that_nvcc_makes_once():
    report = traced(BY_NAME["search"])
    wanted = next(a for a in report.lines if a.buffer == "wanted")
    repeated = wanted.requests - 1024 // WARP
    if repeated == 0:  # clang makes them once, too
        return
    counters = KERNELS["search"]["counters"]
    loads = report.global_load
    assert loads.requests - repeated == counters["global_load_requests"]
    assert loads.sectors - 4 * repeated == counters["global_load_sectors"]
