"""What the lanes of a warp do together: shuffles, votes, reductions, groups."""

from __future__ import annotations

import numpy as np


def test_shuffles_against_their_definition(build):
    kernel = build(
        """__global__ void k(int* out, int width) {
    int lane = threadIdx.x, i = 0;
    out[32 * i++ + lane] = __shfl_sync(~0u, lane * 10, 3, width);
    out[32 * i++ + lane] = __shfl_sync(~0u, lane * 10, lane + 5, width);
    out[32 * i++ + lane] = __shfl_up_sync(~0u, lane * 10, 2, width);
    out[32 * i++ + lane] = __shfl_down_sync(~0u, lane * 10, 3, width);
    out[32 * i++ + lane] = __shfl_xor_sync(~0u, lane * 10, 5, width);
    out[32 * i++ + lane] = (int)__shfl_sync(~0u, (double)lane / 2, 31, width) +
                           (int)__shfl_xor_sync(~0u, (long long)lane << 40, 1) / 2;
}"""
    )
    for width in (32, 16, 8, 4):
        out = np.zeros((6, 32), np.int32)
        kernel("k", 1, 32, out, width)
        lane = np.arange(32)
        base = lane // width * width
        up, down, xor = lane - 2, lane + 3, lane ^ 5
        wanted = [
            base + 3 % width,
            base + (lane + 5) % width,
            np.where(up < base, lane, up),
            np.where(down >= base + width, lane, down),
            np.where(xor >= base + width, lane, xor),
        ]
        for row, source in zip(out, wanted, strict=False):
            assert (row == source * 10).all()
        assert (out[5] == (base + 31 % width) // 2).all()


def test_votes_matches_and_reductions(build):
    kernel = build(
        """__global__ void k(unsigned* out) {
    unsigned lane = threadIdx.x, i = 0;
    unsigned half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    int all = 7;
    out[32 * i++ + lane] = __ballot_sync(~0u, lane % 3 == 0);
    out[32 * i++ + lane] = __any_sync(half, lane == 3);
    out[32 * i++ + lane] = __all_sync(half, lane < 16);
    out[32 * i++ + lane] = __match_any_sync(~0u, lane / 8);
    out[32 * i++ + lane] = __match_all_sync(half, lane < 16 ? 5u : lane, &all) + all;
    out[32 * i++ + lane] = __reduce_add_sync(half, lane);
    out[32 * i++ + lane] = __reduce_min_sync(~0u, (int)lane - 40) + 100;
    out[32 * i++ + lane] = __reduce_max_sync(half, lane);
    out[32 * i++ + lane] = __reduce_xor_sync(~0u, lane * lane);
    out[32 * i++ + lane] = __syncthreads_count(lane > 3)
        + 100 * __syncthreads_or(lane == 9) + 1000 * __syncthreads_and(lane < 32)
        + 10000 * __syncthreads_and(lane < 31);
}"""
    )
    out = np.zeros((10, 32), np.uint32)
    kernel("k", 1, 32, out)
    lane = np.arange(32)
    low = lane < 16
    assert (out[0] == sum(1 << i for i in range(0, 32, 3))).all()
    assert (out[1] == low).all()
    assert (out[2] == low).all()
    assert (out[3] == [0xFF << (8 * (i // 8)) for i in range(32)]).all()
    assert (out[4] == np.where(low, 0xFFFF + 1, 0)).all()
    assert (out[5] == np.where(low, 120, 376)).all()
    assert (out[6] == 60).all()
    assert (out[7] == np.where(low, 15, 31)).all()
    assert (out[8] == np.bitwise_xor.reduce(lane * lane)).all()
    assert (out[9] == 28 + 100 + 1000).all()


def test_sub_warps_shuffle_on_their_own_in_divergent_code(build):
    kernel = build(
        """__global__ void k(int* out) {
    int lane = threadIdx.x % 32, v = threadIdx.x;
    if (lane < 8) {
        for (int d = 4; d; d /= 2) v += __shfl_xor_sync(0xff, v, d);
    } else if (lane % 2) {
        v = __shfl_sync(0xaaaaaa00, v, 9);
        __syncwarp(0xaaaaaa00);
        v += __shfl_sync(0xaaaaaa00, v, 11);
    }
    __syncwarp();
    out[threadIdx.x] = v;
}"""
    )
    out = np.zeros(64, np.int32)
    kernel("k", 1, 64, out)
    thread = np.arange(64)
    warp, lane = thread // 32 * 32, thread % 32
    wanted = np.where(
        lane < 8, 28 + 8 * warp, np.where(lane % 2, 2 * (warp + 9), thread)
    )
    assert (out == wanted).all()


def test_cooperative_groups(build):
    kernel = build(
        """#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
__global__ void k(int* out, float* sums) {
    auto block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    auto warp = cg::tiled_partition<32>(block);
    int t = block.thread_rank(), n = block.size(), i = 0;
    out[n * i++ + t] = tile.thread_rank() + 10 * tile.meta_group_rank()
        + 1000 * tile.size();
    out[n * i++ + t] = cg::reduce(tile, t, cg::plus<int>());
    out[n * i++ + t] = cg::reduce(warp, t, cg::greater<int>());
    out[n * i++ + t] = tile.shfl(t, 2) + tile.shfl_down(t, 1) + tile.shfl_xor(t, 4);
    out[n * i++ + t] = cg::exclusive_scan(tile, t) + cg::inclusive_scan(warp, 1);
    int value = -1;
    if (t % 3 == 0) {
        auto some = cg::coalesced_threads();
        value = some.thread_rank() + 100 * some.size() + 10000 * (some.shfl(t, 1) % 32);
    }
    out[n * i++ + t] = value;
    out[n * i++ + t] = warp.any(t == 40) + 2 * warp.all(t < 32);
    auto odd = cg::binary_partition(warp, t % 2);
    out[n * i++ + t] = odd.size() * 100 + odd.thread_rank();
    sums[t] = cg::reduce(warp, 0.5f * t, [](float a, float b) { return a + b; });
    block.sync();
    cg::sync(block);
    out[n * i++ + t] = block.group_index().x + block.thread_index().y
        + cg::this_grid().thread_rank();
}"""
    )
    n = 64
    out, sums = np.zeros((9, n), np.int32), np.zeros(n, np.float32)
    kernel("k", 1, (32, 2), out, sums)
    t = np.arange(n)
    base = t // 8 * 8
    assert (out[0] == t % 8 + 10 * (t // 8) + 8000).all()
    assert (out[1] == 8 * base + 28).all()
    assert (out[2] == t // 32 * 32 + 31).all()
    down = np.where(t % 8 < 7, t + 1, t)
    assert (out[3] == base + 2 + down + (t ^ 4)).all()
    exclusive = [sum(range(b, x)) for b, x in zip(base, t, strict=True)]
    assert (out[4] == exclusive + t % 32 + 1).all()
    for warp in (0, 1):
        lanes = [x for x in range(32 * warp, 32 * warp + 32) if x % 3 == 0]
        for rank, x in enumerate(lanes):
            assert out[5, x] == rank + 100 * len(lanes) + 10000 * (lanes[1] % 32)
    assert (out[6] == np.where(t < 32, 2, 1)).all()
    assert (out[7] == 1600 + t % 32 // 2).all()
    assert (
        sums == [np.arange(32 * (x // 32), 32 * (x // 32) + 32).sum() / 2 for x in t]
    ).all()
    assert (out[8] == t // 32 + t).all()


def test_what_a_lane_that_is_not_named_hands_out_is_seen_in_a_sum_and_a_maximum(build):
    kernel = build(
        """__global__ void k(float* out) {
    float sum = 1.0f, most = 1.0f;
    if (threadIdx.x < 20) {
        sum += __shfl_down_sync(0xfffff, sum, 4);
        most = fmaxf(most, __shfl_down_sync(0xfffff, most, 4));
    }
    out[threadIdx.x] = sum;
    out[32 + threadIdx.x] = most;
}"""
    )
    out = np.zeros((2, 32), np.float32)
    kernel("k", 1, 32, out)
    # Lanes 16 to 19 ask lanes 20 to 23, which the mask does not name.
    assert (out[0, :16] == 2).all() and (np.abs(out[0, 16:20]) > 1e38).all()
    assert (out[1, :16] == 1).all() and out[1, 16] > 1e38
