"""The figure of a variance that cancels: its numbers are fp32's, its bits too."""

from __future__ import annotations

import pytest
import torch

from kernelwright.draw import cancelled_bits
from kernelwright.draw.bits import cancelled, exponent, significand
from kernelwright.errors import ArgumentError


def test_bits_spell_the_number() -> None:
    for value in (1.0, 0.1, 1_032.5, 3.0e8):
        spelled = float(torch.tensor(value))
        bits = significand(spelled)
        assert len(bits) == 24 and bits[0] == 1
        total = sum(
            bit * 2.0 ** (exponent(spelled) - at) for at, bit in enumerate(bits)
        )
        assert total == spelled


def test_more_bits_are_lost_the_further_the_mean() -> None:
    rows = [cancelled(ratio) for ratio in (1, 10, 100, 1_000, 10_000)]
    lost = [row.lost for row in rows]
    assert lost == sorted(lost) and lost[0] <= 2
    # Twice the logarithm of mean / deviation.
    assert lost[3] in (19, 20) and lost[4] in (26, 27)
    assert rows[0].off < 1e-5 and rows[3].off > 1e-3 and rows[4].off > 1


def test_the_difference_is_that_of_fp32() -> None:
    row = cancelled(100)
    squares, square = torch.tensor(row.squares), torch.tensor(row.square)
    assert float(squares - square) == row.computed


def test_a_frame_for_each_ratio_says_what_is_left() -> None:
    drawn = cancelled_bits((1, 10_000))
    assert len(drawn.frames) == 2
    assert "0 of the variance are within reach" in drawn.frames[1].words
    assert "a float ends here" in drawn._repr_html_()


@pytest.mark.parametrize("ratios", [(), (-1.0,)])
def test_what_cannot_be_drawn_is_refused(ratios: tuple[float, ...]) -> None:
    with pytest.raises(ArgumentError, match="one or more, none below 0"):
        cancelled_bits(ratios)
