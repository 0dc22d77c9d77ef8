"""How often the warps of a block shuffle, multiply matrices and load fragments."""

from __future__ import annotations

import pytest
import torch

SHUFFLES = """__global__ void k(float* out, int rounds) {
    float v = threadIdx.x;
    if (threadIdx.x < 64)
        for (int i = 0; i < rounds; ++i) v += __shfl_xor_sync(0xffffffff, v, 1);
    if (threadIdx.x % 32 < 16) v += __shfl_sync(0xffff, v, 0);
    out[blockIdx.x * blockDim.x + threadIdx.x] = v;
}"""

GROUP = """#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void k(float* out) {
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    out[threadIdx.x] = cg::reduce(tile, 1.0f, cg::plus<float>());
}"""

WMMA = """#include <mma.h>
using namespace nvcuda;
__global__ void k(const half* a, const half* b, float* c, int products) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, b, 16);
    for (int i = 0; i < products; ++i) wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(c + 256 * (threadIdx.x / 32), sum, 16, wmma::mem_row_major);
}"""

MMA = """#include <kw/ldmatrix.cuh>
#include <kw/mma.cuh>
__global__ void k(float* out) {
    __shared__ __align__(16) half tile[16 * 16];
    for (int i = threadIdx.x; i < 256; i += 32) tile[i] = 1.0f;
    __syncwarp();
    unsigned a[4], b[2] = {};
    float sum[4] = {};
    kw::ldmatrix(a, tile + threadIdx.x % 16 * 16 + threadIdx.x / 16 * 8);
    for (int i = 0; i < 3; ++i) kw::mma_sync<half>(sum, a, b, sum);
    out[threadIdx.x] = sum[0];
}"""

COPIES = """
#include <kw/cp_async.cuh>
#include <kw/mma.cuh>
__global__ void k(const float* x, float* out) {
    __shared__ __align__(16) float tile[256];
    unsigned a[4] = {}, b[2] = {};
    float sum[4] = {};
    kw::cp_async<16>(tile + 4 * threadIdx.x, x + 4 * threadIdx.x);
    kw::cp_async_commit();
    for (int i = 0; i < 4; ++i) {
        if (i == 3) kw::cp_async_wait<0>();
        kw::mma_sync<half>(sum, a, b, sum);
    }
    out[threadIdx.x] = sum[0] + tile[4 * threadIdx.x];
}"""


def _of_a_block(report):
    """What each block did; the busiest warp is the launch's."""
    done = {name: figure for name, figure in report.by_block.items() if figure}
    done.pop("requests of the busiest warp", None)
    return done


@pytest.mark.parametrize("rounds", [0, 5])
def test_shuffles_are_those_of_a_blocks_warps(trace, rounds):
    report = trace(SHUFFLES, "k", 3, 128, torch.zeros(384), rounds)
    # Two warps in the loop, and half of each of four warps behind it.
    assert _of_a_block(report) == {"shuffles": 2 * rounds + 4}


def test_a_groups_reduction_is_one(trace):
    out = torch.zeros(64)
    report = trace(GROUP, "k", 1, 64, out)
    assert report.by_block["shuffles"] == 2 and bool((out == 32).all())


@pytest.mark.parametrize("products", [0, 1, 7])
def test_products_are_those_that_ran(trace, products):
    a, b = torch.eye(16).half(), torch.eye(16).half()
    c = torch.zeros(2, 16, 16)
    report = trace(WMMA, "k", 1, 64, a, b, c, products)
    assert _of_a_block(report) == (
        {"matrix products": 2 * products} if products else {}
    )
    assert torch.equal(c, products * torch.eye(16).expand(2, 16, 16))
    report.assert_clean()


def test_a_matrix_is_loaded_once_for_three_products(trace):
    report = trace(MMA, "k", 2, 32, torch.zeros(32))
    assert (report.by_block["ldmatrix"], report.by_block["matrix products"]) == (1, 3)
    for said in (str(report), report._repr_html_()):
        assert "a block: 3 matrix products, 1 ldmatrix" in said


def test_what_is_copied_behind_a_product_is_a_blocks(trace):
    """Three of four products have the copies of all 64 threads behind them."""
    x, out = torch.arange(256.0), torch.zeros(64)
    report = trace(COPIES, "k", 1, 64, x, out)
    assert report.by_block["bytes under way at a product"] == 64 * 16 * 3 / 4
