"""The figures of attention: tiles from a kernel's own trace, memory from its points."""

from __future__ import annotations

import re

import pytest
import torch

import kernelwright as kw
from kernelwright.draw import memory_growth, tile_visits
from kernelwright.errors import ArgumentError
from kernelwright.trace.report import TraceReport

# Reads tiles of 4 floats of k, those that block b of the queries sees.
SKIPPING = """
__global__ void walk(const float* q, const float* k, float* out, int tiles) {
    float sum = q[threadIdx.x];
    for (int tile = 0; tile < tiles; ++tile) sum += k[4 * tile + threadIdx.x];
    out[threadIdx.x] = sum;
}
"""


def traced(block: int) -> TraceReport:
    kernel = kw.cuda.compile(SKIPPING, backend="emulator")["walk"]
    q, k, out = torch.randn(4), torch.randn(16), torch.empty(4)
    return kernel.trace[1, 4](q, k, out, block + 1)


def test_each_block_shows_its_tiles_in_order() -> None:
    figure = tile_visits(traced, 3, 4, tile_bytes=16, queries=4, keys=4)
    words = [frame.words for frame in figure.frames]
    assert words[0].startswith("6 of 12 tiles are visited, 50% are skipped.")
    assert words[1].startswith("Step 1: queries 0–3 take keys 0–3; queries 4–7 take")
    assert words[3] == "Step 3: queries 8–11 take keys 8–11. 2 blocks are done."
    assert len(figure.frames) == 4
    assert figure.frames[1].svg.count("<rect") == 3
    assert figure.base.count("kw-none") == 12
    html = figure._repr_html_()
    assert "http" not in re.sub(r"http://www\.w3\.org/\S+", "", html)


def test_a_kernel_that_reads_no_keys_is_drawn_empty() -> None:
    figure = tile_visits(lambda _: traced(-1), 2, 4, tile_bytes=16)
    assert len(figure.frames) == 1
    assert figure.frames[0].words.startswith("0 of 8 tiles are visited, 100%")


def test_more_reads_than_a_trace_keeps_are_not_drawn() -> None:
    kernel = kw.cuda.compile(SKIPPING, backend="emulator")["walk"]
    q, k, out = torch.randn(4), torch.randn(4 * 300), torch.empty(4)

    def long(_: int) -> TraceReport:
        return kernel.trace[1, 4](q, k, out, 300)

    with pytest.raises(ArgumentError, match="keeps 256 of 300 reads of k"):
        tile_visits(long, 1, 300, tile_bytes=16)


def test_memory_continues_the_curve_through_the_last_points() -> None:
    standard = {n: 5 * n + 3 * n * n for n in (256, 512)}
    tiled = {n: 40 * n for n in (256, 512)}
    figure = memory_growth(
        {"standard": standard, "tiled": tiled},
        (256, 512, 1024, 2048),
        ("a small GPU", 20e6),
        heads=2,
    )
    words = [frame.words for frame in figure.frames]
    assert words[1].startswith("256 tokens: standard 386 KiB; tiled 20 KiB. 19.3 times")
    # 2 * (5 n + 3 n^2) at 2,048, beyond what was measured: 25.2 MB.
    assert "standard 24 MiB (continued), more than a small GPU" in words[4]
    assert "tiled 160 KiB (continued)." in words[4]
    assert figure.base.count('fill="none" stroke="var(--kw-') >= 4  # hollow points
