"""The reasons why a GPU's counters differ from the trace's, held to the numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from kernelwright.emulator.toolchain import find_compiler
from kernelwright.trace import Request, TraceReport
from tests.golden.cases import BY_NAME
from tests.golden.test_trace import KERNELS, ROLLED, traced

WARP = 32
SECTOR = 32


LINE = 128


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
    repeated = wanted.repeats
    assert repeated == wanted.requests - 1024 // WARP  # none with clang, as with nvcc
    counters = KERNELS["search"]["counters"]
    loads = report.global_load
    assert loads.requests - repeated == counters["global_load_requests"]
    assert loads.sectors - 4 * repeated == counters["global_load_sectors"]


def asynchronous(report: TraceReport) -> list[list[tuple[int, int]]]:
    """List for each asynchronous copy of a warp where its lanes copy from and to."""
    ends: dict[str, list[Request]] = {"global": [], "shared": []}
    for request in report.accesses():
        if request.op == "async copy":
            ends[request.space].append(request)
    for found in ends.values():
        found.sort(key=lambda r: (r.block, r.warp, r.order))
    return [
        [
            (origin[3], target[3])
            for origin, target in zip(load.lanes, store.lanes, strict=True)
        ]
        for load, store in zip(ends["global"], ends["shared"], strict=True)
    ]


@pytest.mark.parametrize(
    "name",
    ["gemm_mma", "async_close", "async_padded_16", "async_padded_32", "async_swizzled"],
)
def test_a_copy_past_the_cache_fetches_by_where_its_bytes_will_lie(name):
    # cp.async of 16 bytes a lane goes past the first-level cache (LDGSTS.BYPASS). What
    # is fetched, and what crosses from the second-level cache, is a sector for each 32
    # bytes of shared memory that a part of it goes to, so one whose halves end up in
    # two such places comes twice. The pipe's counter of loads counts neither that nor
    # what was asked for: one for each 128-byte line and each 32 bytes of shared memory.
    report = traced(BY_NAME[name])
    counters = KERNELS[name]["counters"]
    copies = asynchronous(report)
    fetched = counted = asked = 0
    for lanes in copies:
        # Side by side in both, or exchanged: a third thing that may differ.
        fetched += len({(g // 32, s // 32, (g ^ s) // 16 % 2) for g, s in lanes})
        counted += len({(g // LINE, s // 32) for g, s in lanes})
        asked += len({g // 32 for g, _ in lanes})
    assert len(copies) == counters["async_copies"]
    assert fetched == counters["async_sectors"] == report.global_load.sectors
    assert counted == counters["global_load_sectors"]
    assert counters["load_sectors"] == 0
    padded = name in ("gemm_mma", "async_padded_16")
    assert fetched == (1.5 * asked if padded else asked)


@pytest.mark.parametrize(
    ("name", "width"), [("async_padded_8", 8), ("async_padded_4", 4)]
)
def test_a_copy_through_the_cache_fetches_what_it_asks_for(name, width):
    report = traced(BY_NAME[name])
    counters = KERNELS[name]["counters"]
    asked = sum(len({g // 32 for g, _ in lanes}) for lanes in asynchronous(report))
    assert asked == counters["async_sectors"] == counters["global_load_sectors"]
    assert report.global_load.sectors == asked
    assert {a.width for a in report.lines if a.op == "async copy"} == {width}


def test_what_nvcc_runs_in_larger_steps_is_marked_and_what_it_may_not_is_not():
    loops = {"sparse_rows": 3}
    if not find_compiler().is_clang:  # which makes no loop of uneven_loop
        loops["uneven_loop"] = 1
    for name, loads in loops.items():
        case = BY_NAME[name]
        lines = case.source.splitlines()
        inside = [a for a in traced(case).lines if "sum +=" in lines[a.line - 1]]
        assert len(inside) == loads
        assert all(a.uneven for a in inside)
        assert not any(a.uneven for a in traced(case).lines if a not in inside)
    assert not any(a.uneven for case in ROLLED for a in traced(case).lines)


def test_one_store_at_the_end_gives_the_gpus_loads_behind_a_loop_with_a_return():
    pick, _, _, n = BY_NAME["return_from_the_loop"].draw()
    sectors = requests = 0

    def load(indices: list[int]) -> None:
        nonlocal sectors, requests
        sectors += len({int(i) % n * 4 // SECTOR for i in indices})
        requests += bool(indices)

    for first in range(0, 1024, WARP):
        inside, k = list(range(first, first + WARP)), 0
        while inside:
            at = {i: pick[(i * 5 + k * 64) % n] for i in inside}
            load([i * 5 + k * 64 for i in inside])
            load([at[i] for i in inside if at[i] % 13 == 0])
            staying = [i for i in inside if at[i] % 13]
            load([i + 32 * k for i in staying])
            leaving = [i for i in staying if k == i % 9]
            load([i + 7 for i in leaving])
            load([2 * i for i in leaving])
            inside, k = [i for i in staying if k < i % 9], k + 1
    counters = KERNELS["return_from_the_loop"]["counters"]
    assert sectors == counters["global_load_sectors"]
    assert requests == counters["global_load_requests"]
