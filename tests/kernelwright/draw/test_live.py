"""The live figures: a changed parameter runs the trace again."""

from __future__ import annotations

import re

import pytest
import torch

import kernelwright as kw
from kernelwright.draw import Explorer, explore_stride, explore_tile, live
from kernelwright.trace.report import TraceReport

OWN_COPY = """
__global__ void own(const float* x, float* out, int n, int stride) {
    int i = threadIdx.x * stride + 1;
    if (i < n) out[i] = x[i];
}
"""
OWN_TILE = """
template <int PADDING, bool SWIZZLE>
__global__ void down(const float* x, float* out) {
    __shared__ float tile[32][32 + PADDING];
    for (int r = threadIdx.y; r < 32; r += 8) tile[r][threadIdx.x] = x[r];
    __syncthreads();
    for (int r = threadIdx.y; r < 32; r += 8)
        out[r * 32 + threadIdx.x] = tile[threadIdx.x][r];
}
"""


def test_a_choice_is_traced_once() -> None:
    asked: list[int] = []
    kernel = kw.cuda.compile(OWN_COPY, backend="emulator")["own"]

    def run(stride: int) -> TraceReport:
        asked.append(stride)
        x = torch.arange(1100.0)
        return kernel.trace[1, 32](x, torch.empty_like(x), x.numel(), stride)

    explorer = explore_stride(run, (1, 2, 32))
    assert "5 sectors per request" in explorer.picture(1).words
    assert asked == [1]
    shown = explorer._repr_html_()
    assert "stride 32: 32 sectors per request, 12.5% of the bytes" in shown
    assert asked == [1, 2, 32]


def test_the_readers_own_sources() -> None:
    assert "stride 1: 5 sectors" in str(explore_stride(OWN_COPY, (1,)))
    kernel = kw.cuda.compile(OWN_COPY, backend="emulator")["own"]
    assert "stride 2: 8 sectors" in str(explore_stride(kernel, (2,)))
    said = str(explore_tile(OWN_TILE, (0, 1), (False,)))
    assert "padding 0, swizzle off: a store takes 1 wavefront, a load 32" in said
    assert "padding 1, swizzle off: a store takes 1 wavefront, a load 1" in said
    with pytest.raises(kw.ArgumentError, match="has 2 kernels"):
        explore_stride(OWN_COPY + OWN_COPY.replace("own", "other"))


def test_a_default_tile_transposes() -> None:
    module = kw.cuda.compile(live.TILE, backend="emulator")
    for padding, swizzle in ((0, "false"), (1, "false"), (0, "true")):
        x, out = torch.rand(32, 32), torch.empty(32, 32)
        module[f"transpose_tile<{padding}, {swizzle}>"][1, (32, 8)](x, out)
        assert torch.equal(out, x.T)


def test_the_figure_has_a_frame_for_each_choice() -> None:
    explorer: Explorer = explore_tile(paddings=(0, 1, 2))
    figure = explorer.figure()
    assert [frame.words.split(":")[0] for frame in figure.frames] == [
        f"padding {p}, swizzle {s}" for p in (0, 1, 2) for s in ("off", "on")
    ]
    assert len(re.findall("kw-wrong", figure.frames[0].svg)) == 31
    assert "kw-wrong" not in figure.frames[1].svg
