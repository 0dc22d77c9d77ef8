"""The warp tile: chapter 6's order of lanes, and the one that a kernel stored by."""

from __future__ import annotations

from pathlib import Path

import torch

import kernelwright as kw
from kernelwright.draw import warp_tile

SOURCE = Path("solutions/matmul/warp_tiles.cu").read_text()


def traced(source: str) -> str:
    """Draw the order of lanes of a kernel that multiplies 128 x 8 by 8 x 128."""
    kernel = kw.cuda.compile(source, backend="emulator")["matmul_warp_tiles"]
    a, b, c = torch.randn(128, 8), torch.randn(8, 128), torch.empty(128, 128)
    report = kernel.trace[1, 256](a, b, c, 128, 128, 8)
    return "\n".join(frame.words for frame in warp_tile(report).frames)


def test_the_answer_s_lanes_stand_as_they_are_drawn_before_it() -> None:
    assert traced(SOURCE) == "\n".join(frame.words for frame in warp_tile().frames)


def test_another_order_is_drawn_as_it_is() -> None:
    plain = SOURCE.replace("(lane / 2 % 2 + lane / 8 * 2)", "(lane / 4)").replace(
        "(lane % 2 + lane / 4 % 2 * 2)", "(lane % 4)"
    )
    said = traced(plain)
    assert "lane 13: rows 12-15 and 44-47, columns 4-7 and 20-23." in said
    assert "the same of a is read by 12 and 15, of b by neither" in said


def test_a_kernel_that_stores_nothing_is_no_error() -> None:
    head = SOURCE[SOURCE.index("__global__") : SOURCE.index("{", SOURCE.index("__glo"))]
    empty = head + "{}"
    assert "no store" in traced(empty)
