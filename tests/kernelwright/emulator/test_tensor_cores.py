"""Asynchronous copies, ldmatrix, mma.sync and wmma against their definitions."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(11)


def test_cp_async_delivers_at_the_wait_and_not_before(build):
    kernel = build(
        """#include <kw/cp_async.cuh>
__global__ void k(const int* x, int* out) {
    __shared__ __align__(16) int tile[3][4];
    for (int i = 0; i < 12; ++i) tile[i / 4][i % 4] = 7;
    kw::cp_async<16>(tile[0], x);
    kw::cp_async_commit();
    kw::cp_async<4>(&tile[1][0], x + 4);
    kw::cp_async<8>(&tile[1][2], x + 6, false);
    kw::cp_async_commit();
    out[0] = tile[0][0] == x[0];
    kw::cp_async_wait<1>();
    out[1] = tile[0][0] == x[0] && tile[0][3] == x[3];
    out[2] = tile[1][0] == x[4];
    kw::cp_async_wait<0>();
    out[3] = tile[1][0] == x[4] && tile[1][1] == 7 && tile[1][2] == 0
        && tile[1][3] == 0;
    kw::cp_async<16>(tile[2], x + 8);
    kw::cp_async_wait_all();
    out[4] = tile[2][0] == x[8] && tile[2][3] == x[11];
}"""
    )
    x, out = np.arange(20, 36, dtype=np.int32), np.zeros(5, np.int32)
    kernel("k", 1, 1, x, out)
    assert out.tolist() == [0, 1, 0, 1, 1]


def test_a_missing_wait_shows_in_the_result(build):
    kernel = build(
        """#include <kw/cp_async.cuh>
__global__ void k(const float* x, float* out) {
    __shared__ float tile[32];
    kw::cp_async<4>(&tile[threadIdx.x], x + threadIdx.x);
    kw::cp_async_commit();
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}"""
    )
    out = np.zeros(32, np.float32)
    kernel("k", 1, 32, np.ones(32, np.float32), out)
    assert np.isnan(out).all()


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [0, 1])
def test_ldmatrix_against_its_definition(build, count, transposed):
    kernel = build(
        f"""#include <kw/ldmatrix.cuh>
__global__ void k(const unsigned short* x, unsigned* out) {{
    __shared__ __align__(16) unsigned short tile[32][8];
    for (int i = 0; i < 8; ++i) tile[threadIdx.x][i] = x[threadIdx.x * 8 + i];
    __syncthreads();
    unsigned r[{count}];
    kw::ldmatrix{"_trans" if transposed else ""}(r, tile[threadIdx.x]);
    for (int i = 0; i < {count}; ++i) out[i * 32 + threadIdx.x] = r[i];
}}"""
    )
    x = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    out = np.zeros((count, 32, 2), np.uint16)
    kernel("k", 1, 32, x, out)
    for matrix in range(count):
        source = x[matrix].T if transposed else x[matrix]
        assert (out[matrix].reshape(8, 8) == source).all()


@pytest.mark.parametrize("kind", ["__half", "__nv_bfloat16", "kw::tf32"])
def test_mma_sync_against_its_layout(build, random, kind):
    depth = 8 if kind == "kw::tf32" else 16
    load = (
        """
    a[0] = A[g * 8 + t]; a[1] = A[(g + 8) * 8 + t];
    a[2] = A[g * 8 + t + 4]; a[3] = A[(g + 8) * 8 + t + 4];
    b[0] = B[t * 8 + g]; b[1] = B[(t + 4) * 8 + g];"""
        if depth == 8
        else """
    for (int i = 0; i < 4; ++i) {
        int row = g + i % 2 * 8, col = 2 * t + i / 2 * 8;
        a[i] = A[row * 16 + col] | A[row * 16 + col + 1] << 16;
    }
    for (int i = 0; i < 2; ++i) {
        int row = 2 * t + i * 8;
        b[i] = B[row * 8 + g] | B[(row + 1) * 8 + g] << 16;
    }"""
    )
    word = "unsigned" if depth == 8 else "unsigned short"
    kernel = build(
        f"""#include <kw/mma.cuh>
__global__ void k(const {word}* A, const {word}* B, float* C) {{
    int g = threadIdx.x / 4, t = threadIdx.x % 4;
    unsigned a[4], b[2];
    float c[4] = {{1, 1, 1, 1}}, d[4];{load}
    kw::mma_sync<{kind}>(d, a, b, c);
    for (int i = 0; i < 4; ++i) C[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}}"""
    )
    a = random.integers(-8, 8, (16, depth)).astype(np.float32)
    b = random.integers(-8, 8, (depth, 8)).astype(np.float32)
    c = np.zeros((16, 8), np.float32)
    if kind == "__half":
        kernel("k", 1, 32, a.astype(np.float16), b.astype(np.float16), c)
    elif kind == "__nv_bfloat16":
        upper = [(v.view(np.uint32) >> 16).astype(np.uint16) for v in (a, b)]
        kernel("k", 1, 32, *upper, c)
    else:
        kernel("k", 1, 32, a, b, c)
    assert (c == a @ b + 1).all()


@pytest.mark.parametrize("shape", [(16, 16, 16), (32, 8, 16), (8, 32, 16)])
@pytest.mark.parametrize("layouts", ["row row", "col row", "row col", "col col"])
def test_wmma_shapes_and_layouts(build, random, shape, layouts):
    m, n, k = shape
    left, right = layouts.split()
    kernel = build(
        f"""#include <mma.h>
using namespace nvcuda;
__global__ void k(const half* a, const half* b, const float* c, float* d, half* e) {{
    wmma::fragment<wmma::matrix_a, {m}, {n}, {k}, half, wmma::{left}_major> fa;
    wmma::fragment<wmma::matrix_b, {m}, {n}, {k}, half, wmma::{right}_major> fb;
    wmma::fragment<wmma::accumulator, {m}, {n}, {k}, float> fc;
    wmma::fragment<wmma::accumulator, {m}, {n}, {k}, half> fe;
    wmma::load_matrix_sync(fa, a, {k if left == "row" else m});
    wmma::load_matrix_sync(fb, b, {n if right == "row" else k});
    wmma::load_matrix_sync(fc, c, {m}, wmma::mem_col_major);
    wmma::mma_sync(fc, fa, fb, fc);
    for (int i = 0; i < fc.num_elements; ++i) fc.x[i] *= 2;
    wmma::store_matrix_sync(d, fc, {n}, wmma::mem_row_major);
    wmma::fill_fragment(fe, __float2half(1.0f));
    wmma::mma_sync(fe, fa, fb, fe);
    wmma::store_matrix_sync(e, fe, {n}, wmma::mem_row_major);
}}"""
    )
    a = random.integers(-4, 4, (m, k)).astype(np.float16)
    b = random.integers(-4, 4, (k, n)).astype(np.float16)
    c = random.integers(-4, 4, (m, n)).astype(np.float32)
    d, e = np.zeros((m, n), np.float32), np.zeros((m, n), np.float16)

    def stored(matrix, layout):
        return np.ascontiguousarray(matrix if layout == "row" else matrix.T)

    kernel("k", 1, 32, stored(a, left), stored(b, right), stored(c, "col"), d, e)
    product = a.astype(float) @ b.astype(float)
    assert (d == 2 * (product + c)).all()
    assert (e == product + 1).all()


def test_wmma_in_tf32(build, random):
    kernel = build(
        """#include <mma.h>
using namespace nvcuda;
__global__ void k(const float* a, const float* b, float* c) {
    using tf32 = wmma::precision::tf32;
    wmma::fragment<wmma::matrix_a, 16, 16, 8, tf32, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, tf32, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    wmma::load_matrix_sync(fa, a, 8);
    wmma::load_matrix_sync(fb, b, 16);
    for (int i = 0; i < fa.num_elements; ++i) fa.x[i] = wmma::__float_to_tf32(fa.x[i]);
    for (int i = 0; i < fb.num_elements; ++i) fb.x[i] = wmma::__float_to_tf32(fb.x[i]);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}"""
    )
    a = random.standard_normal((16, 8), np.float32)
    b = random.standard_normal((8, 16), np.float32)
    c = np.zeros((16, 16), np.float32)
    kernel("k", 1, 32, a, b, c)
    exact = a.astype(float) @ b
    assert 0 < np.abs(c - exact).max() < 2e-2


def test_sums_that_nobody_began_are_nan(build):
    kernel = build(
        """#include <mma.h>
using namespace nvcuda;
__global__ void k(const __half* a, float* out) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, a, 16);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(out, sum, 16, wmma::mem_row_major);
}"""
    )
    out = np.zeros((16, 16), np.float32)
    kernel("k", 1, 32, np.ones((16, 16), np.float16), out)
    assert np.isnan(out).all()
