"""Who touches the same elements: threads of one block, of several, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelwright.emulator.operations import COUNTED, OPERATIONS

N = 96
KERNEL = """__global__ void k(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    BODY
}"""


def shared(trace: Any, body: str, grid: int = 3, out: Any = None) -> dict[str, Any]:
    """Return what threads share of x and of out, by name."""
    out = torch.empty(N) if out is None else out
    report = trace(KERNEL.replace("BODY", body), "k", grid, 32, torch.rand(N), out, N)
    assert not report.problems
    return {s.buffer: s for s in report.sharing}


def test_each_element_has_one_thread(trace):
    found = shared(trace, "out[i] = x[i];")
    for s in found.values():
        assert (s.elements, s.threads, s.blocks) == (N, 0, 0)
        assert (s.index_threads, s.index_blocks) == (0, 0)
    assert (found["x"].op, found["x"].position) == ("load", 0)
    assert (found["out"].op, found["out"].position) == ("store", 1)


@pytest.mark.parametrize(
    ("loop", "threads", "blocks"),
    [
        ("for (int j = 0; j < n; ++j)", 96, 3),
        ("for (int j = threadIdx.x; j < n; j += 32)", 0, 3),
        ("for (int j = threadIdx.x; blockIdx.x == 1 && j < n; j += 32)", 0, 1),
    ],
)
def test_all_of_it_is_done_by_several(trace, loop, threads, blocks):
    found = shared(trace, f"{loop} out[j] = x[j];")
    for s in found.values():
        assert (s.threads, s.blocks) == (threads, blocks)
    stored = found["out"]
    writers = (threads or blocks, blocks) if blocks > 1 else (0, 0)
    assert (stored.index_threads, stored.index_blocks) == writers
    assert (stored.index, stored.line) == (0, 3 if blocks > 1 else 0)


def test_the_lowest_element_that_several_store_is_named(trace):
    body = "out[i] = x[i];\n    if (i % 8 == 7) out[i - 2] = x[i - 2];"
    stored = shared(trace, body)["out"]
    assert (stored.index, stored.index_threads, stored.index_blocks) == (5, 2, 1)
    assert stored.line in (3, 4)


def test_halves_of_one_word_are_two_elements(trace):
    source = """#include <cuda_fp16.h>
__global__ void k(const __half* x, __half* out) {
    out[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x == 9) out[3] = x[3];
}"""
    x, out = torch.rand(32).half(), torch.empty(32).half()
    stored = trace(source, "k", 1, 32, x, out).sharing[1]
    assert (stored.index, stored.index_threads) in ((3, 2), (2, 2))
    assert stored.threads == 0


@pytest.mark.parametrize("body", ["atomicAdd(&out[0], x[i]);", "out[i] = out[i] = 1;"])
def test_atomics_and_one_threads_own_stores_are_no_meeting(trace, body):
    found = shared(trace, body, out=torch.zeros(N))
    assert all(s.index_threads == 0 for s in found.values())


def test_the_runtimes_table_is_read():
    named = {op.counted_as: op for op in OPERATIONS if op.counted_as}
    assert set(named) == set(COUNTED) >= {"barriers", "shuffles"}
    assert [op.number for op in OPERATIONS] == list(range(1, len(OPERATIONS) + 1))
    assert all("{}" in COUNTED[op.counted_as or "barriers"].sentence
               for op in OPERATIONS)  # fmt: skip
