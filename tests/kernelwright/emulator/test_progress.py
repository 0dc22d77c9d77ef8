"""Threads that wait for each other make progress, as on a GPU since Volta."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize("grid", [1, 6])
def test_spin_lock_among_the_lanes_of_a_warp(build, grid):
    kernel = build(
        """__global__ void k(int* lock, int* count) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence();
    int v = *(volatile int*)count;
    *(volatile int*)count = v + 1;
    __threadfence();
    atomicExch(lock, 0);
}"""
    )
    lock, count = np.zeros(1, np.int32), np.zeros(1, np.int32)
    kernel("k", grid, 96, lock, count)
    assert count[0] == grid * 96


def test_a_lane_that_waits_on_a_plain_flag_lets_the_others_run(build):
    kernel = build(
        """__global__ void k(volatile int* flags, int* out) {
    int i = threadIdx.x;
    // Each waits for the one behind it, and the first runs first.
    if (i + 1 < blockDim.x) while (flags[i + 1] == 0) {}
    flags[i] = 1;
    out[i] = i;
}"""
    )
    out = np.zeros(40, np.int32)
    kernel("k", 1, 40, np.zeros(40, np.int32), out)
    assert (out == np.arange(40)).all()


def test_preemption_keeps_every_register(build):
    """A long computation beside a spinner: its vectors survive the switches."""
    kernel = build(
        """__global__ void k(volatile int* done, const double* x, double* out, int n) {
    if (threadIdx.x == 0) {
        while (done[0] < 3) {}
        return;
    }
    double a[8] = {};
    for (int round = 0; round < 60; ++round)
        for (int i = 0; i < n; i += 8)
            for (int j = 0; j < 8; ++j) a[j] = a[j] * 0.5 + x[i + j];
    for (int j = 0; j < 8; ++j) out[threadIdx.x * 8 + j] = a[j];
    atomicAdd((int*)done, 1);
}"""
    )
    n = 1 << 17
    x = np.random.default_rng(1).standard_normal(n)
    out = np.zeros((4, 8))
    kernel("k", 1, 4, np.zeros(1, np.int32), x, out, n)
    assert (out[1] == out[2]).all()
    assert (out[1] == out[3]).all()
    a = np.zeros(8)
    for row in x.reshape(-1, 8)[-200:]:
        a = a * 0.5 + row
    np.testing.assert_allclose(out[1], a, rtol=1e-12)


def test_a_later_block_may_wait_for_an_earlier_one(build):
    kernel = build(
        """__global__ void k(volatile int* sums, const int* x) {
    __shared__ int before;
    int b = blockIdx.x;
    if (threadIdx.x == 0) {
        if (b > 0) while (sums[b - 1] < 0) {}
        before = b > 0 ? sums[b - 1] : 0;
    }
    __syncthreads();
    if (threadIdx.x == 31) sums[b] = before + x[b];
}"""
    )
    x = np.arange(50, dtype=np.int32)
    sums = np.full(50, -1, np.int32)
    kernel("k", 50, 32, sums, x)
    assert (sums == np.cumsum(x)).all()


def test_exited_threads_count_as_arrived(build):
    kernel = build(
        """__global__ void k(int* out, int n) {
    __shared__ int tile[64];
    int i = threadIdx.x;
    if (i >= n) return;
    tile[i] = i;
    __syncthreads();
    out[i] = tile[n - 1 - i];
}"""
    )
    out = np.zeros(64, np.int32)
    with pytest.warns(UserWarning, match="line 6.*had already returned"):
        kernel("k", 1, 64, out, 40)
    assert (out[:40] == np.arange(40)[::-1]).all()


def test_lanes_that_have_exited_do_not_hold_up_a_warp(build):
    kernel = build(
        """__global__ void k(int* out) {
    if (threadIdx.x % 2) return;
    out[threadIdx.x] = __popc(__ballot_sync(0xffffffff, 1));
}"""
    )
    out = np.zeros(32, np.int32)
    kernel("k", 1, 32, out)
    assert (out[::2] == 16).all()


def test_activemask_groups_the_lanes_of_a_branch(build):
    kernel = build(
        """__global__ void k(unsigned* out) {
    int i = threadIdx.x;
    if (i % 4 == 0)
        out[i] = __activemask();
    else if (i < 20)
        out[i] = __activemask();
    else
        out[i] = 0;
}"""
    )
    out = np.zeros(32, np.uint32)
    kernel("k", 1, 32, out)
    fourth = sum(1 << i for i in range(0, 32, 4))
    rest = sum(1 << i for i in range(20) if i % 4)
    wanted = [fourth if i % 4 == 0 else rest if i < 20 else 0 for i in range(32)]
    assert out.tolist() == wanted


def test_no_block_sees_what_an_earlier_one_left_in_shared_memory(build):
    kernel = build(
        """__global__ void k(int* out) {
    __shared__ int never_set;
    extern __shared__ int also_never_set[];
    out[blockIdx.x] = never_set + also_never_set[3];
    never_set = also_never_set[3] = 5;
}"""
    )
    out = np.zeros(8, np.int32)
    kernel("k", 8, 1, out, shared=16)
    assert (out == -2).all()
