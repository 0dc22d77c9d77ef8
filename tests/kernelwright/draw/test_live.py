"""The live figures: a changed parameter runs the trace again."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from typing import Any

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


needs_widgets = pytest.mark.skipif(
    importlib.util.find_spec("ipywidgets") is None, reason="ipywidgets is not here"
)


@needs_widgets
def test_the_widget_traces_again_when_the_stride_is_changed() -> None:
    asked: list[int] = []
    kernel = kw.cuda.compile(OWN_COPY, backend="emulator")["own"]

    def run(stride: int) -> TraceReport:
        asked.append(stride)
        x = torch.arange(1100.0)
        return kernel.trace[1, 32](x, torch.empty_like(x), x.numel(), stride)

    explorer = explore_stride(run, (1, 2, 32))
    controls, shown = explorer.widget().children
    assert asked == [1]
    assert "stride 1: 5 sectors per request" in shown.value
    before = shown.value
    controls.children[0].value = 32
    assert asked == [1, 32]
    assert "stride 32: 32 sectors per request, 12.5% of the bytes" in shown.value
    assert before.count("kw-used") != 0 and before != shown.value
    assert "<script" not in shown.value


@needs_widgets
def test_the_widget_traces_again_when_the_tile_is_changed() -> None:
    explorer = explore_tile(paddings=(0, 1))
    controls, shown = explorer.widget().children
    padding, swizzle = controls.children
    assert "a load 32 wavefronts" in shown.value
    padding.value = 1
    assert "padding 1, swizzle off: a store takes 1 wavefront, a load 1" in shown.value
    padding.value, swizzle.value = 0, True
    assert "padding 0, swizzle on: a store takes 1 wavefront, a load 1" in shown.value


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


def without(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Callable[..., Any] = importlib.util.find_spec
    monkeypatch.setattr(
        live.importlib.util,
        "find_spec",
        lambda name: None if name == "ipywidgets" else found(name),
    )


def test_without_ipywidgets_it_is_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    explorer = explore_stride(strides=(1, 2))
    shown = explorer._repr_mimebundle_()
    assert set(shown) == {"text/html", "text/plain"}
    assert shown["text/html"].count("data-frame=") == 2
    with pytest.raises(kw.ArgumentError, match="pip install ipywidgets"):
        explorer.widget()


@needs_widgets
def test_a_static_page_gets_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = explore_stride(strides=(1, 2))
    monkeypatch.delenv(live.STATIC, raising=False)
    assert live.WIDGET_TYPE in explorer._repr_mimebundle_()
    monkeypatch.setenv(live.STATIC, "1")
    assert live.WIDGET_TYPE not in explorer._repr_mimebundle_()


def test_the_figure_has_a_frame_for_each_choice() -> None:
    explorer: Explorer = explore_tile(paddings=(0, 1, 2))
    figure = explorer.figure()
    assert [frame.words.split(":")[0] for frame in figure.frames] == [
        f"padding {p}, swizzle {s}" for p in (0, 1, 2) for s in ("off", "on")
    ]
    assert len(re.findall("kw-wrong", figure.frames[0].svg)) == 31
    assert "kw-wrong" not in figure.frames[1].svg
