"""The epilogue's map: drawn from what the lanes of a product really hold."""

from __future__ import annotations

import pytest
import torch

import kernelwright as kw
from kernelwright.draw import epilogue_map

SUMS = """
#include <kw/mma.cuh>

// Row g of A is (8 g, 1, 0, ...), row 0 of B ones, row 1 their columns.
__global__ void numbered(float* held) {
    int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    half2 a[4] = {}, b[2] = {};
    if (t == 0) {
        a[0] = __floats2half2_rn(8.0f * g, 1.0f);
        a[1] = __floats2half2_rn(8.0f * (g + 8), 1.0f);
        b[0] = __floats2half2_rn(1.0f, g);
    }
    unsigned(&x)[4] = reinterpret_cast<unsigned(&)[4]>(a);
    unsigned(&y)[2] = reinterpret_cast<unsigned(&)[2]>(b);
    float sum[4] = {};
    kw::mma_sync<half>(sum, x, y, sum);
    for (int i = 0; i < 4; ++i) held[4 * lane + i] = sum[i];
}
"""


def held() -> torch.Tensor:
    kernel = kw.cuda.compile(SUMS, backend="emulator")["numbered"]
    found = torch.empty(32, 4)
    kernel[1, 32](found)
    return found


def test_a_frame_a_lane_with_its_biases_and_stores() -> None:
    figure = epilogue_map(held())
    assert len(figure.frames) == 1 + 32
    assert figure.frames[14].words == (
        "lane 13 = 4 * 3 + 1: sum[0] is (3, 2), sum[1] is (3, 3), sum[2] is (11, 2), "
        "sum[3] is (11, 3); needs b2 and b3, stores bytes 4 to 7 of row 3 and bytes 4 "
        "to 7 of row 11"
    )
    # Four sums, four places in memory, two biases.
    assert figure.frames[14].svg.count("<rect") == 10


def test_pairs_that_no_store_could_take_are_refused() -> None:
    given = held()
    with pytest.raises(kw.ArgumentError, match="hold 128 elements, 64 different ones"):
        epilogue_map(given % 64)
    with pytest.raises(kw.ArgumentError, match="lane 0 holds elements 1, 0, 64 and 65"):
        epilogue_map(given[:, [1, 0, 2, 3]])
