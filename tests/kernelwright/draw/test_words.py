"""Codes on their way to registers: what is drawn is what pack did."""

from __future__ import annotations

import re

import pytest
import torch

from kernelwright.draw import explore_words
from kernelwright.errors import ArgumentError
from solutions.int4 import Quantized, pack


def packed(codes: torch.Tensor) -> torch.Tensor:
    """Pack as the package does: its order is what the figure explains."""
    scales = torch.ones(16, 1)
    whole = Quantized(codes, scales, torch.full_like(scales, 8).byte(), 64)
    return pack(whole).words.view(32, 4)


def in_plain_order(codes: torch.Tensor) -> torch.Tensor:
    shifts = 4 * torch.arange(8)
    return (codes.view(-1, 8).long() << shifts).sum(-1).view(32, 4)


def test_a_lane_has_what_the_layout_says() -> None:
    explorer = explore_words(packed)
    for lane in (0, 5, 31):
        g, t = divmod(lane, 4)
        words = explorer.picture(lane, 2).words
        assert f"rows {g} and {g + 8} of columns {16 * t} to {16 * t + 15}" in words
        assert words.endswith(f"columns {16 * t + 8} to {16 * t + 11}")


def test_registers_hold_the_codes_of_the_tile() -> None:
    codes = torch.randint(0, 16, (16, 64)).byte()
    svg = explore_words(packed, codes).picture(17, 1).drawn.frames[0].svg
    g, t = divmod(17, 4)
    column = 16 * t + 4
    # Register i: the second number is written first, it has the higher bits.
    places = [(g, column), (g + 8, column), (g, column + 2), (g + 8, column + 2)]
    wanted = [int(codes[r, c + more]) for r, c in places for more in (1, 0)]
    found = re.findall(r"64(0.) = (\d+)", svg)
    assert [int(code, 16) for code, _ in found] == wanted
    assert [int(number) for _, number in found] == [1024 + code for code in wanted]


def test_any_order_will_do() -> None:
    words = explore_words(in_plain_order).picture(1, 0).words
    assert "rows 0 of columns 32 to 63" in words
    assert words.endswith("columns 32 to 39")


def test_a_code_that_is_lost_is_refused() -> None:
    with pytest.raises(ArgumentError, match="wanted each of them once"):
        explore_words(lambda codes: in_plain_order(codes) & 0x7FFFFFF)
    with pytest.raises(ArgumentError, match="four words for each lane"):
        explore_words(lambda codes: in_plain_order(codes).view(4, 32))
