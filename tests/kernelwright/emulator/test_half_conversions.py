"""Conversions of fp16 and bf16: one text, under the names of both."""

from __future__ import annotations

import numpy as np
import pytest

SOURCE = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__global__ void k(float* out) {
    NAME2 a = __lowhigh2highlow(__floats2NAME2_rn(1.5f, 2.5f));
    NAME2 b = __highs2NAME2(a, __NAME2NAME2(__int2NAME_rn(7)));
    float2 c = __NAME22float2(a), d = __NAME22float2(b);
    float found[] = {c.x, c.y, d.x, d.y, __NAME2float(__high2NAME(__low2NAME2(a))),
                     float(__NAME2int_rz(__float2NAME(-2.75f))),
                     float(__NAME_as_ushort(__double2NAME(1.0))),
                     float(__short_as_NAME(__NAME_as_short(__uint2NAME_rn(3))))};
    for (int i = 0; i < 8; ++i) out[i] = found[i];
}
"""


@pytest.mark.parametrize(("name", "one"), [("half", 0x3C00), ("bfloat16", 0x3F80)])
def test_each_has_all_of_them(build, name, one):
    # bfloat162 is both the pair's name and the beginning of "bfloat16 to": as in CUDA.
    source = SOURCE.replace("NAME2 a", "PAIR a").replace("NAME2 b", "PAIR b")
    pair = {"half": "__half2", "bfloat16": "__nv_bfloat162"}[name]
    out = np.zeros(8, np.float32)
    build(source.replace("PAIR", pair).replace("NAME", name), "k")("k", 1, 1, out)
    assert out.tolist() == [2.5, 1.5, 1.5, 7.0, 2.5, -2.0, one, 3.0]


@pytest.mark.parametrize("type_", ["__half", "__nv_bfloat16"])
def test_a_maximum_lets_nan_through_where_it_is_asked_to(build, type_):
    source = f"""
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    __global__ void k(float* out) {{
        {type_} nan(NAN), one(1.0f), two(2.0f);
        float found[] = {{float(__hmax_nan(nan, one)), float(__hmin_nan(one, nan)),
                         float(__hmax_nan(one, two)), float(__hmin_nan(one, two)),
                         float(__hmax(nan, one))}};
        for (int i = 0; i < 5; ++i) out[i] = found[i];
    }}"""
    out = np.zeros(5, np.float32)
    build(source, "k")("k", 1, 1, out)
    assert np.isnan(out[:2]).all() and out[2:].tolist() == [2.0, 1.0, 1.0]


def test_a_choice_among_halves_compiles(build):
    """G++ 12 had its assembler refuse it on processors that compute with halves."""
    source = """
    #include <cuda_fp16.h>
    __global__ void k(const __half* x, const __half* y, __half* out, int n) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            __half s = __hadd(x[i], y[i]);
            out[i] = __hlt(s, __float2half(0.0f)) ? __float2half(0.0f) : s;
        }
    }"""
    x, y = np.float16([-3, 2, 5]), np.float16([1, 1, -4])
    out = np.zeros(3, np.float16)
    build(source, "k")("k", 1, 32, x, y, out, 3)
    assert out.tolist() == [0, 3, 1]
