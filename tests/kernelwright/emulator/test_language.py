"""The language: what CUDA adds to C++, one thing a test, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(11)


def test_indices_of_a_three_dimensional_launch(build):
    kernel = build(
        """__global__ void k(int* out) {
    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    int size = blockDim.x * blockDim.y * blockDim.z;
    dim3 b = blockDim;
    out[block * size + thread] = 100 * threadIdx.z + 10 * threadIdx.y + threadIdx.x
        + 1000 * (blockIdx.z + blockIdx.y + blockIdx.x) + 100000 * (b.x + gridDim.z);
}"""
    )
    out = np.zeros((2 * 3 * 2, 2 * 3 * 5), np.int32)
    kernel("k", (2, 3, 2), (5, 3, 2), out)
    z, y, x = np.meshgrid(range(2), range(3), range(5), indexing="ij")
    bz, by, bx = np.meshgrid(range(2), range(3), range(2), indexing="ij")
    inner = (100 * z + 10 * y + x).ravel()
    outer = (1000 * (bz + by + bx)).ravel()
    assert (out == outer[:, None] + inner + 700000).all()


def test_templates_namespaces_device_functions_and_constants(build):
    kernel = build(
        """namespace n {
template <class T, int N>
struct Scale { __device__ T operator()(T x) const { return x * N; } };
__constant__ float offsets[2] = {0.25f, 0.5f};
__device__ __forceinline__ float offset(int i) { return offsets[i % 2]; }
template <class T, int N>
__global__ void __launch_bounds__(64) k(T* __restrict__ p) {
    p[threadIdx.x] = Scale<T, N>{}(p[threadIdx.x]) + offset(threadIdx.x);
}
}""",
        "n::k<float, 3>",
        "n::k<double, 5>",
    )
    signatures = kernel.library.signatures
    assert signatures == {
        "n::k<float, 3>": "void (float*)",
        "n::k<double, 5>": "void (double*)",
    }
    single, double = np.arange(8, dtype=np.float32), np.arange(8.0)
    kernel("n::k<float, 3>", 1, 8, single)
    kernel("n::k<double, 5>", 1, 8, double)
    offsets = np.tile([0.25, 0.5], 4)
    assert (single == np.arange(8) * 3 + offsets).all()
    assert (double == np.arange(8) * 5 + offsets).all()


def test_arguments_of_every_kind_arrive(build):
    kernel = build(
        """struct Pair { char c; double d; };
__global__ void k(double* out, bool b, char c, unsigned char u, short s, long long l,
                  float f, double d, float4 v, Pair p, const int* const q) {
    out[0] = (double)b + c + u + s + l + f + d + v.x + v.w + p.c + p.d + q[1];
}"""
    )
    import ctypes

    class Pair(ctypes.Structure):
        _fields_ = [("c", ctypes.c_char), ("d", ctypes.c_double)]

    out, q = np.zeros(1), np.array([1, 2], np.int32)
    kernel(
        "k",
        1,
        1,
        out,
        ctypes.c_bool(True),
        ctypes.c_int8(-3),
        ctypes.c_uint8(200),
        ctypes.c_int16(-1000),
        ctypes.c_int64(1 << 40),
        ctypes.c_float(0.5),
        ctypes.c_double(0.25),
        np.array([1, 2, 3, 4], np.float32).tobytes(),
        Pair(b"A", 0.125),
        q,
    )
    assert out[0] == 1 - 3 + 200 - 1000 + 2**40 + 0.5 + 0.25 + 1 + 4 + 65 + 0.125 + 2


def test_vector_types_are_aligned_and_copied_whole(build, random):
    kernel = build(
        """static_assert(sizeof(float3) == 12 && alignof(float3) == 4);
static_assert(alignof(float4) == 16 && alignof(int2) == 8 && alignof(double2) == 16);
static_assert(sizeof(uchar4) == 4 && alignof(uchar4) == 4);
__global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 4) return;
    float4 v = reinterpret_cast<const float4*>(x)[i];
    v.x += 1; v.y *= 2; v.z -= 3; v.w = -v.w;
    reinterpret_cast<float4*>(y)[i] = make_float4(v.x, v.y, v.z, v.w);
}"""
    )
    x = random.standard_normal(256, np.float32)
    y = np.zeros_like(x)
    kernel("k", 2, 32, x, y, 256)
    v = x.reshape(-1, 4)
    wanted = np.stack([v[:, 0] + 1, v[:, 1] * 2, v[:, 2] - 3, -v[:, 3]], 1)
    assert (y.reshape(-1, 4) == wanted).all()


def test_atomics_on_global_and_shared_memory(build):
    kernel = build(
        """__global__ void k(int* i, unsigned* u, unsigned long long* l, float* f,
                  double* d) {
    __shared__ int local;
    __shared__ float total;
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) { local = 0; total = 0; }
    __syncthreads();
    atomicAdd(&local, 1);
    atomicAdd_block(&total, 0.5f);
    atomicAdd(&i[0], t);
    atomicSub(&i[1], 2);
    atomicMin(&i[2], -t);
    atomicMax(&i[3], t);
    atomicOr(&u[0], 1u << t % 32);
    atomicAnd(&u[1], ~(1u << t % 16));
    atomicXor(&u[2], t);
    atomicInc(&u[3], 9);
    atomicDec(&u[4], 9);
    atomicAdd(&l[0], 1ull << 33);
    atomicMax(&l[1], (unsigned long long)t << 40);
    atomicAdd(&f[0], 0.25f);
    atomicAdd(&d[0], 0.125);
    float old, now = f[1];
    do {
        old = now;
        now = __int_as_float(atomicCAS((int*)&f[1], __float_as_int(old),
                                       __float_as_int(fmaxf(old, t))));
    } while (now != old);
    __syncthreads();
    if (threadIdx.x == 0) { atomicAdd(&i[4], local); atomicAdd(&f[2], total); }
}"""
    )
    i = np.zeros(5, np.int32)
    u = np.array([0, 0xFFFFFFFF, 0, 0, 0], np.uint32)
    wide = np.zeros(2, np.uint64)
    f, d = np.zeros(3, np.float32), np.zeros(1)
    n = 7 * 96
    kernel("k", 7, 96, i, u, wide, f, d)
    t = np.arange(n)
    assert i.tolist() == [t.sum(), -2 * n, -(n - 1), n - 1, n]
    assert u.tolist() == [
        0xFFFFFFFF,
        0xFFFF0000,
        np.bitwise_xor.reduce(t),
        n % 10,
        (-n) % 10,
    ]
    assert wide.tolist() == [n << 33, (n - 1) << 40]
    assert f.tolist() == [n / 4, n - 1, n / 2]
    assert d[0] == n / 8


def test_half_and_bfloat16(build, random):
    kernel = build(
        """#include <cuda_fp16.h>
#include <cuda_bf16.h>
__global__ void k(const half* x, const half* y, half* h, __nv_bfloat16* b, half2* h2,
                  half* sum, float* f) {
    int i = threadIdx.x;
    h[i] = x[i] * y[i] + __float2half(0.5f);
    b[i] = __float2bfloat16(__half2float(x[i])) * __nv_bfloat16(3.0f);
    half2 v = __halves2half2(x[i], y[i]);
    h2[i] = __hfma2(v, __float2half2_rn(2.0f), __half2half2(__hneg(x[i])));
    atomicAdd(sum, half(1));
    half other = __shfl_xor_sync(~0u, x[i], 1);
    f[i] = float(other) + __bfloat162float(b[i]) + (x[i] < y[i]) + __low2float(v)
        + float(hexp(x[i])) + float(__hmax(x[i], y[i]));
}"""
    )
    x, y = random.standard_normal((2, 32)).astype(np.float16)
    x, y = x.copy(), y.copy()
    h, h2 = np.zeros(32, np.float16), np.zeros((32, 2), np.float16)
    b, total = np.zeros(32, np.uint16), np.zeros(1, np.float16)
    f = np.zeros(32, np.float32)
    kernel("k", 1, 32, x, y, h, b, h2, total, f)
    # A GPU, too, may round the product and the sum once instead of twice.
    np.testing.assert_allclose(h, x * y + np.float16(0.5), rtol=2e-3, atol=1e-3)

    def bf16(values):
        bits = np.asarray(values, np.float32).view(np.uint32)
        return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16

    rounded = bf16(bf16(x).view(np.float32) * np.float32(3))
    assert (b.astype(np.uint32) << 16 == rounded).all()
    exact = np.stack([x, y], 1).astype(np.float64) * 2 - x.astype(np.float64)[:, None]
    np.testing.assert_allclose(h2, exact, rtol=1e-3, atol=1e-4)
    assert total[0] == 32
    wanted = x[np.arange(32) ^ 1] + rounded.view(np.float32) + (x < y) + x.astype("f4")
    wanted = wanted + np.exp(x.astype("f4")) + np.maximum(x, y)
    np.testing.assert_allclose(f, wanted, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize(
    ("expression", "function"),
    [
        ("expf(x) + __expf(x) + exp(x)", lambda x: 3 * np.exp(x)),
        ("rsqrtf(fabsf(x)) + rsqrt(fabs(x))", lambda x: 2 / np.sqrt(np.abs(x))),
        ("sinpif(x) * cospif(x)", lambda x: np.sin(np.pi * x) * np.cos(np.pi * x)),
        ("__fdividef(x, 3.0f) + __frcp_rn(x)", lambda x: x / 3 + 1 / x),
        ("max(x, 0.5f) + min(x, 1) + max(1, 2u)", None),
        ("__saturatef(x) + fmaf(x, x, 1.0f) + __fmaf_rn(x, 2.0f, x)", None),
        ("erfinvf(tanhf(x))", None),
        ("copysignf(2.0f, x) + truncf(x * 3) + rintf(x * 3) + fmodf(x, 0.3f)", None),
        ("normcdff(x)", None),
    ],
)
def test_mathematics(build, random, expression, function):
    import math

    plain = {
        "max(x": lambda x: np.maximum(x, 0.5) + np.minimum(x, 1) + 2,
        "__sat": lambda x: np.clip(x, 0, 1) + x * x + 1 + 3 * x,
        "copys": lambda x: (
            np.copysign(2, x) + np.trunc(x * 3) + np.rint(x * 3) + np.fmod(x, 0.3)
        ),
        "normc": np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2))),
    }
    kernel = build(
        "__global__ void k(float* p) {\n    float x = p[threadIdx.x];\n"
        f"    p[threadIdx.x] = {expression};\n}}"
    )
    x = random.standard_normal(64, np.float32)
    out = x.copy()
    kernel("k", 1, 64, out)
    exact = x.astype(float)
    if expression.startswith("erfinv"):
        back = np.vectorize(math.erf)(out.astype(float))
        np.testing.assert_allclose(back, np.tanh(exact), rtol=1e-5, atol=1e-6)
        return
    reference = function or plain[expression[:5]]
    np.testing.assert_allclose(out, reference(exact), rtol=2e-5, atol=2e-6)


def test_integer_intrinsics(build):
    kernel = build(
        """__global__ void k(unsigned* out) {
    int i = 0;
    out[i++] = __popc(0xf0f0u) + __popcll(~0ull);
    out[i++] = __clz(1) + __clz(0) + __clzll(1);
    out[i++] = __ffs(8) + __ffs(0);
    out[i++] = __brev(1u) + __brev(0x80000000u);
    out[i++] = __byte_perm(0x33221100u, 0x77665544u, 0x7531);
    out[i++] = __funnelshift_l(0x80000000u, 1u, 1) + __funnelshift_r(1u, 1u, 1);
    out[i++] = __umulhi(0x80000000u, 6u) + __mulhi(-1, 1) + __mul24(5, 7);
    out[i++] = __dp4a(0x01020304, 0x01010101, 5) + __usad(3u, 9u, 1u);
    out[i++] = __float2int_rn(2.5f) + __float2int_rz(-1.7f) + __float2int_ru(1.2f);
    out[i++] = __float2int_rn(1e20f) == 2147483647 && __float2int_rn(-1e20f) < 0
        && __float2uint_rz(-3.0f) == 0 && __float2int_rn(nanf("")) == 0;
    out[i++] = __fadd_ru(1.0f, 1e-10f) > 1.0f && __fadd_rd(1.0f, 1e-10f) == 1.0f
        && __fsub_rz(1.0f, 1e-10f) < 1.0f && __fadd_rn(1.0f, 1e-10f) == 1.0f;
    out[i++] = __float_as_uint(1.0f) >> 23;
}"""
    )
    out = np.zeros(12, np.uint32)
    kernel("k", 1, 1, out)
    assert out.tolist() == [
        72,
        31 + 32 + 63,
        4,
        0x80000001,
        0x77553311,
        3 + 0x80000000,
        3 - 1 + 35,
        15 + 7,
        2 - 1 + 2,
        1,
        1,
        127,
    ]


def test_printf_is_captured_whole_and_capped(build):
    kernel = build(
        r"""__global__ void k(int n) {
    for (int i = 0; i < n; ++i)
        printf("%d %s %5.2f %llu\n", i, "text", 0.5, 1ull << 40);
}"""
    )
    assert kernel("k", 1, 1, 2) == (
        "0 text  0.50 1099511627776\n1 text  0.50 1099511627776\n"
    )
    text = kernel("k", 1, 1, 100_000)
    assert len(text) < (1 << 20) + 100
    assert text.endswith("cut at 1 MB]\n")


def test_headers_of_nvcc_and_of_c(build):
    kernel = build(
        """#include <cuda_runtime.h>
#include <cuda/std/cstdint>
#include <cstdint>
#include <cstdio>
#include <cassert>
#include <cfloat>
#include <math_constants.h>
__global__ void k(std::uint8_t* p, cuda::std::int64_t n) {
    assert(n == 3);
    p[0] = FLT_MAX < CUDART_INF_F;
}"""
    )
    import ctypes

    out = np.zeros(1, np.uint8)
    kernel("k", 1, 1, out, ctypes.c_int64(3))
    assert out[0] == 1
    assert kernel.library.signatures["k"] == "void (unsigned char*, long)"


def test_hints_fences_and_clocks(build):
    kernel = build(
        """__global__ void k(const float* x, float* y, long long* t) {
    long long begin = clock64();
    unsigned long long wall = __globaltimer();
    __stcs(&y[0], __ldg(&x[0]) + __ldcg(&x[1]) + __ldcs(x + 2));
    __threadfence(); __threadfence_block();
    __nanosleep(100);
    clock_t c = clock();
    t[0] = clock64() - begin;
    t[1] = __globaltimer() >= wall && c != 0;
}"""
    )
    y, t = np.zeros(1, np.float32), np.zeros(2, np.int64)
    kernel("k", 1, 1, np.array([1, 2, 4], np.float32), y, t)
    assert y[0] == 7
    assert t[0] > 0
    assert t[1] == 1


def test_a_block_of_1024_threads_with_large_shared_memory(build):
    kernel = build(
        """__global__ void k(int* out) {
    extern __shared__ int buffer[];
    int n = 227 * 1024 / 4;
    for (int i = threadIdx.x; i < n; i += blockDim.x) buffer[i] = i;
    __syncthreads();
    out[threadIdx.x] = buffer[n - 1 - threadIdx.x];
}"""
    )
    out = np.zeros(1024, np.int32)
    kernel("k", 3, 1024, out, shared=227 * 1024)
    assert (out == 227 * 256 - 1 - np.arange(1024)).all()


@pytest.mark.parametrize(
    ("grid", "block", "shared", "words"),
    [
        (1, 1025, 0, "1 to 1024 threads"),
        (1, (1, 1, 65), 0, "at most 64"),
        ((1, 65536), 1, 0, "65535 along y"),
        (0, 1, 0, "at least one block"),
        (1, 1, 227 * 1024 + 1, "227 KB"),
    ],
)
def test_launches_that_no_gpu_could_make(build, grid, block, shared, words):
    from kernelwright.errors import LaunchError

    kernel = build("__global__ void k() {}")
    with pytest.raises(LaunchError, match=words):
        kernel("k", grid, block, shared=shared)
