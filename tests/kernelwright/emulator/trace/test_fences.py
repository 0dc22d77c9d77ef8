"""What a fence and an atomic hand on, and whom they reach."""

from __future__ import annotations

import pytest
import torch

LAST_BLOCK = """__device__ unsigned int arrived;
__global__ void total(const float* x, float* part, float* out) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        BEFORE
        part[blockIdx.x] = x[blockIdx.x];
        FENCE
        last = ATOMIC(&arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float sum = 0;
        for (int i = 0; i < gridDim.x; ++i) sum += part[i];
        out[0] = sum;
    }
}"""


def total(trace, *, before="", fence, atomic="atomicAdd"):
    """Trace a sum whose last block reads what the others published."""
    source = LAST_BLOCK.replace("BEFORE", before).replace("FENCE", fence)
    x, part, out = torch.ones(8), torch.zeros(8), torch.zeros(1)
    source = source.replace("ATOMIC", atomic)
    return trace(source, "total", 8, 32, x, part, out)


@pytest.mark.parametrize("fence", ["__threadfence();", "__threadfence_system();"])
@pytest.mark.parametrize("atomic", ["atomicAdd", "atomicAdd_system"])
def test_a_fence_of_the_device_and_a_wider_one_reach_other_blocks(trace, fence, atomic):
    total(trace, fence=fence, atomic=atomic).assert_clean()


def test_a_fence_of_block_scope_publishes_nothing_to_another_block(trace):
    (problem,) = total(trace, fence="__threadfence_block();").problems
    assert (problem.kind, problem.lines, problem.buffer) == ("race", (6, 13), "part")
    message = problem.message
    assert "__threadfence_block() reaches this block's threads only" in message
    assert "needs __threadfence() before the atomic" in message


def test_without_any_fence_no_narrow_one_is_blamed(trace):
    (problem,) = total(trace, fence="").problems
    assert problem.lines == (6, 13)
    assert "__threadfence_block" not in problem.message
    assert "__threadfence() and then count itself by an atomic" in problem.message


@pytest.mark.parametrize("fence", ["", "__threadfence_block();"])
def test_a_fence_publishes_nothing_that_was_written_after_it(trace, fence):
    report = total(trace, before="__threadfence();", fence=fence)
    assert [(p.kind, p.lines) for p in report.problems] == [("race", (6, 13))]
    assert ("__threadfence_block()" in report.problems[0].message) == bool(fence)


def test_an_atomic_of_block_scope_is_none_for_another_block(trace):
    report = total(trace, fence="__threadfence();", atomic="atomicAdd_block")
    part, counter = sorted(report.problems, key=lambda p: p.lines)
    assert (part.kind, part.lines) == ("race", (6, 13))
    assert (counter.kind, counter.lines, counter.buffer) == ("race", (8,), "arrived")
    assert "use the one without _block" in counter.message


def test_an_atomic_of_block_scope_counts_for_its_own_block(trace):
    source = """__global__ void k(const int* x, int* out) {
    __shared__ int bins[4];
    if (threadIdx.x < 4) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd_block(&bins[x[threadIdx.x]], 1);
    atomicMax_block(&out[blockIdx.x], x[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x < 4) atomicAdd(&out[4 + threadIdx.x], bins[threadIdx.x]);
}"""
    x = torch.arange(128, dtype=torch.int32) % 4
    out = torch.zeros(8, dtype=torch.int32)
    trace(source, "k", 4, 128, x, out).assert_clean()
    assert out.tolist() == [3] * 4 + [128] * 4


ACROSS_WARPS = """__global__ void k(int* data, int* flag, int* out) {
    if (threadIdx.x == 0) {
        data[0] = 7;
        FENCE
        atomicExch(flag, 1);
    }
    if (threadIdx.x == 32) {
        while (atomicAdd(flag, 0) == 0) {}
        out[0] = data[0];
    }
}"""


@pytest.mark.parametrize(
    ("fence", "kinds"),
    [
        ("__threadfence_block();", []),
        ("__threadfence();", []),
        ("", ["race"]),
    ],
)
def test_within_a_block_a_fence_of_block_scope_is_one(trace, fence, kinds):
    data, flag, out = (torch.zeros(1, dtype=torch.int32) for _ in range(3))
    source = ACROSS_WARPS.replace("FENCE", fence)
    report = trace(source, "k", 1, 64, data, flag, out)
    assert [p.kind for p in report.problems] == kinds
    assert out.item() == 7
    # No fence is too narrow between two of one block.
    assert all("__threadfence" not in p.message for p in report.problems)


def test_the_last_block_may_read_what_the_others_published(trace):
    source = """__device__ unsigned int arrived;
__global__ void total(const float* x, float* part, float* out) {
    __shared__ bool last;
    atomicAdd(&part[blockIdx.x], x[blockIdx.x * 32 + threadIdx.x]);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(&arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float sum = 0;
        for (int i = 0; i < gridDim.x; ++i) sum += part[i];
        out[0] = sum;
    }
}"""
    x, part, out = torch.ones(256), torch.zeros(8), torch.zeros(1)
    for _ in range(2):  # `arrived` begins at zero each time
        trace(source, "total", 8, 32, x, part.zero_(), out.zero_()).assert_clean()
        assert out.item() == 256
    without = source.replace("        __threadfence();\n", "").replace(
        "    __threadfence();\n", ""
    )
    report = trace(without, "total", 8, 32, x, part.zero_(), out)
    assert [p.kind for p in report.problems] == ["race"]
    # An atomic alone is there already: what it lacks is the fence before it.
    assert "__threadfence() and then count itself" in report.problems[0].message
