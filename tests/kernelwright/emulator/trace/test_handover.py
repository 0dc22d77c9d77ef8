"""Blocks, and warps of a block, that hand values on again and again behind flags."""

from __future__ import annotations

import pytest
import torch

from kernelwright.emulator.library import worker_count

# Blocks that wait for each other must be there at once.
TOGETHER = pytest.mark.skipif(worker_count() < 2, reason="runs one block at a time")
ROUNDS = 40

# Block 0 fills slots and block 1 empties them; it may fill as many ahead as there are.
RING = """constexpr int SLOTS = {slots};
__global__ void k(volatile int* slot, int* filled, int* emptied, int* out,
                  int rounds) {{
    if (threadIdx.x != 0) return;
    int sum = 0;
    for (int i = 0; i < rounds; ++i) {{
        if (blockIdx.x == 0) {{
            while (atomicAdd(emptied, 0) + SLOTS <= i) {{}}
            __threadfence();
            slot[i % SLOTS] = i;
            {publish}
            atomicExch(filled, i + 1);
        }} else {{
            while (atomicAdd(filled, 0) <= i) {{}}
            __threadfence();
            sum += slot[i % SLOTS];
            {give_back}
            atomicExch(emptied, i + 1);
        }}
    }}
    if (blockIdx.x == 1) out[0] = sum;
}}"""
FENCE = "__threadfence();"


def ring(trace, slots, *, publish=FENCE, give_back=FENCE):
    source = RING.format(slots=slots, publish=publish, give_back=give_back)
    slot = torch.zeros(slots, dtype=torch.int32)
    filled, emptied, out = (torch.zeros(1, dtype=torch.int32) for _ in range(3))
    return trace(source, "k", 2, 32, slot, filled, emptied, out, ROUNDS), out


@TOGETHER
@pytest.mark.parametrize("slots", [1, 2, 5, ROUNDS])
def test_a_ring_of_slots_between_blocks_is_clean(trace, slots):
    report, out = ring(trace, slots)
    report.assert_clean()
    assert out.item() == sum(range(ROUNDS))


def races(report):
    """List the lines of what was found, which must be races; the earlier line first."""
    assert {p.kind for p in report.problems} <= {"race"}, report
    return sorted({tuple(sorted(p.lines)) for p in report.problems})


# The fence behind the wait stands before the write, and publishes nothing of it. With
# one slot neither goes on without the other: what each has seen is not left to chance.
@TOGETHER
@pytest.mark.parametrize(
    "fence", ["", "__threadfence_block();", "if (i < 3) __threadfence();"]
)
def test_a_ring_that_is_filled_without_a_fence_is_a_race(trace, fence):
    report, _ = ring(trace, 1, publish=fence)
    assert races(report) == [(10, 16)]


@TOGETHER
def test_a_ring_that_is_emptied_without_a_fence_is_a_race(trace):
    report, _ = ring(trace, 1, give_back="")
    assert races(report) == [(10, 16)]


@TOGETHER
def test_what_was_published_first_does_not_vouch_for_what_comes_later(trace):
    # Block 1 took notice once only, before block 0 wrote the second value.
    source = """__device__ float work() {
    float x = 0;
    for (int i = 0; i < 30000; ++i) x = cosf(x);
    return x;
}
__global__ void k(int* data, int* flag, int* seen, float* out) {
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) {
        data[0] = 1;
        __threadfence();
        atomicExch(flag, 1);
        while (atomicAdd(seen, 0) == 0) {}
        out[0] = work();
        data[1] = 2;
        __threadfence();
        atomicExch(flag, 2);
    } else {
        while (atomicAdd(flag, 0) == 0) {}
        atomicExch(seen, 1);
        __threadfence();
        out[1] = work() + work() + work() + data[0] + data[1];
    }
}"""
    data, out = torch.zeros(2, dtype=torch.int32), torch.zeros(2)
    flag, seen = torch.zeros(2, 1, dtype=torch.int32)
    report = trace(source, "k", 2, 32, data, flag, seen, out)
    assert races(report) == [(14, 21)]
    (problem,) = report.problems
    assert problem.index == 1


@TOGETHER
def test_what_was_published_first_stays_so_when_more_is_published(trace):
    source = """__global__ void k(int* data, int* flag, float* out) {
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) {
        data[0] = 1;
        __threadfence();
        atomicExch(flag, 1);
        data[1] = 2;
        __threadfence();
        atomicExch(flag, 2);
    } else {
        while (atomicAdd(flag, 0) == 0) {}
        float x = 0;
        for (int i = 0; i < WORK; ++i) x = cosf(x);  // until the other is long done
        out[0] = data[0] + (x > 2);
    }
}"""
    data, flag = torch.zeros(2, 2, dtype=torch.int32)
    out = torch.zeros(1)
    trace(source.replace("WORK", "300000"), "k", 2, 32, data, flag, out).assert_clean()
    assert out.item() == 1


def test_a_lock_that_blocks_take_in_turn_is_clean(trace):
    source = """__global__ void k(int* lock, volatile int* count) {
    for (int i = 0; i < 20; ++i) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        count[0] = count[0] + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}"""
    lock, count = torch.zeros(2, 1, dtype=torch.int32)
    trace(source, "k", 4, 3, lock, count).assert_clean()
    assert count.item() == 4 * 3 * 20
    # Released without a fence, the count is not handed on.
    without = source.replace(
        "        __threadfence();\n        atomicExch", "        atomicExch"
    )
    report = trace(without, "k", 4, 3, lock, count.zero_())
    assert {p.kind for p in report.problems} == {"race"}


# Warp 0 writes, warp 1 reads: lane 0 of each speaks for its warp.
WARPS = """__global__ void k(int* data, int* flag, int* taken, int* out, int rounds) {
    int lane = threadIdx.x % 32, sum = 0;
    for (int i = 0; i < rounds; ++i) {
        if (threadIdx.x < 32) {
            if (lane == 0) while (atomicAdd(taken, 0) + 2 <= i) {}
            __syncwarp();
            data[i % 2 * 32 + lane] = i + lane;
            FIRST
            if (lane == 0) {
                __threadfence_block();
                atomicExch(flag, i + 1);
            }
        } else {
            if (lane == 0) while (atomicAdd(flag, 0) <= i) {}
            SECOND
            sum += data[i % 2 * 32 + 31 - lane];
            __syncwarp();
            if (lane == 0) {
                __threadfence_block();
                atomicExch(taken, i + 1);
            }
        }
    }
    if (threadIdx.x >= 32) out[lane] = sum;
}"""


def warps(trace, first="__syncwarp();", second="__syncwarp();"):
    data, out = torch.zeros(2, 64, dtype=torch.int32)
    flag, taken = torch.zeros(2, 1, dtype=torch.int32)
    source = WARPS.replace("FIRST", first).replace("SECOND", second)
    return trace(source, "k", 1, 64, data, flag, taken, out, ROUNDS), out


def test_a_lane_hands_over_for_its_warp(trace):
    report, out = warps(trace)
    report.assert_clean()
    assert out[0] == sum(range(ROUNDS)) + 31 * ROUNDS


@pytest.mark.parametrize("missing", ["first", "second"])
def test_a_lane_does_not_speak_for_those_that_it_has_not_met(trace, missing):
    report, _ = warps(trace, **{missing: ";"})
    assert races(report) == [(7, 16)]
