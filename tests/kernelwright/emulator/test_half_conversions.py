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
