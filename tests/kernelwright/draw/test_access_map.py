"""The access map: who touches what, in which order, as the trace saw it."""

from __future__ import annotations

import re

import pytest
import torch

import kernelwright as kw
from kernelwright.draw import Steps, access_map
from kernelwright.trace.report import TraceReport

STRIDED = """
__global__ void strided(const float* x, float* out, int stride) {
    for (int k = 0; k < stride; ++k) {
        int i = threadIdx.x * stride + k;
        out[i] = x[i];
    }
}
"""
REVERSED = """
__global__ void reversed(const float4* x, float* out) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x / 4].x;
    __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}
"""


def strided(stride: int, threads: int = 64) -> TraceReport:
    kernel = kw.cuda.compile(STRIDED, backend="emulator")["strided"]
    x = torch.arange(float(threads * stride))
    return kernel.trace[1, threads](x, torch.empty_like(x), stride)


@pytest.fixture(scope="module")
def reversed_report() -> TraceReport:
    kernel = kw.cuda.compile(REVERSED, backend="emulator")["reversed"]
    # Both blocks do the same; the second one has a tile of its own.
    return kernel.trace[2, 64](torch.arange(64.0), torch.empty(64))


def test_each_instruction_is_a_frame_behind_the_overview() -> None:
    drawn = access_map(strided(4))
    assert len(drawn.frames) == 1 + 4
    assert drawn.frames[0].words == (
        "all accesses to out: 8 requests by 2 warps, in 4 steps"
    )
    assert drawn.frames[2].words == (
        "step 2 of 4, line 5 stores: 2 warps; the first (block 0, 0, 0, warp 0) "
        "out[1] to out[125], neighbouring lanes 4 elements apart; 16 sectors per "
        "request, 4 at best"
    )
    # One path a warp, each with its 32 elements.
    paths = re.findall(r'class="kw-used"[^>]* d="([^"]*)"', drawn.frames[2].svg)
    assert [path.count("M") for path in paths] == [32, 32]


def test_the_caption_states_the_conclusion() -> None:
    assert access_map(strided(1), "x").caption == (
        "x in strided, all blocks. Each of 64 elements is loaded once. Line 5 loads "
        "with neighbouring lanes 1 element apart: 4 sectors per request, 4 at best."
    )


def test_a_shared_array_is_drawn_in_wavefronts(reversed_report: TraceReport) -> None:
    drawn = access_map(reversed_report, "tile")
    assert drawn.caption.startswith(
        "tile in reversed, block 0, 0, 0. Each of 64 elements is touched twice."
    )
    assert "lanes -1 elements apart: 1 wavefront per request" in drawn.caption
    assert [re.findall(r"line \d \w+", f.words) for f in drawn.frames[1:]] == [
        ["line 4 stores"],
        ["line 6 loads"],
    ]


def test_what_is_not_touched_is_said(reversed_report: TraceReport) -> None:
    drawn = access_map(reversed_report, "out", elements=80)
    assert "16 of 80 elements are not stored, each other one is stored twice" in str(
        drawn
    )
    assert drawn.base.count("M") == 80


def test_only_one_operation() -> None:
    report = strided(2)
    assert "loads" in access_map(report, "x", op="load").caption
    assert "no store to x was traced" in str(access_map(report, "x", op="store"))


def test_sampled_blocks_are_named() -> None:
    kernel = kw.cuda.compile(STRIDED, backend="emulator")["strided"]
    x = torch.arange(64.0)
    report = kernel.trace.options(blocks=2)[8, 64](x, torch.empty_like(x), 1)
    assert "2 of 8 blocks" in access_map(report).caption


def test_without_script_all_is_seen_and_no_control_is_dead() -> None:
    drawn: Steps = access_map(strided(4))
    page = drawn._repr_html_()
    first = page.split('data-frame="1"')[0].split("</style>")[1]
    assert "kw-gone" not in first and first.count("h20v20h-20z") == 2 * 256
    assert len(re.findall(r'class="kw-live"[^>]* hidden', page)) == 3
    # The third picture alone: what came before is faint, what follows is not there.
    assert re.findall(r'data-frame="(\d)"( class="[^"]+")?', drawn.svg(3)) == [
        ("0", ' class="kw-gone"'),
        ("1", ' class="kw-past"'),
        ("2", ' class="kw-past"'),
        ("3", ""),
        ("4", ' class="kw-gone"'),
    ]


def test_a_long_launch_is_drawn_in_part_and_says_so() -> None:
    drawn = access_map(strided(1100, threads=32), "x")
    assert "The first 256 of 1,100 requests are drawn." in drawn.caption
    assert "not loaded" not in drawn.caption
    assert len(drawn.frames) == 1 + 64


def test_elements_of_several_warps_say_how_many() -> None:
    source = """
__global__ void windows(const float* x, float* out) {
    out[threadIdx.x] = x[threadIdx.x] + x[threadIdx.x / 32];
}
"""
    kernel = kw.cuda.compile(source, backend="emulator")["windows"]
    report = kernel.trace[1, 96](torch.arange(96.0), torch.empty(96))
    drawn = access_map(report, "x")
    # Element 1 is warp 0's and 1's, 2 is warp 0's and 2's; the rest has one warp.
    labels = re.findall(r">([×\d]+)</text>", drawn.frames[0].svg)
    assert labels == ["0", "×2", "×2", "0", "1", "2"]
    assert "Each of 96 elements is loaded once or twice" in drawn.caption
