"""The online softmax in pictures says what the arithmetic says."""

from __future__ import annotations

import math
import re

import pytest
import torch

from kernelwright.draw import online_softmax

_ROW = [1.0, -0.5, 3.0, 2.0]


def _drawn(svg: str) -> list[float]:
    """Return the numbers that a picture writes."""
    return [float(n) for n in re.findall(r">(-?[\d.]+(?:e-?\d+)?)</text>", svg)]


def test_has_an_overview_a_step_for_each_number_and_a_division() -> None:
    figure = online_softmax(_ROW)
    assert len(figure.frames) == 1 + len(_ROW) + 1
    total = sum(math.exp(x - 3) for x in _ROW)
    assert f"maximum 3, total {total:.3g}" in figure.frames[0].words
    assert "rose 1 time " in figure.frames[0].words


def test_says_the_factor_where_the_maximum_rises_and_none_where_it_stays() -> None:
    figure = online_softmax(_ROW)
    assert "the first maximum" in figure.frames[1].words
    assert "stays 1, the factor is 1" in figure.frames[2].words
    assert "exp(1 - 3) = 0.135" in figure.frames[3].words
    total = (1 + math.exp(-1.5)) * math.exp(-2) + 1
    assert figure.frames[3].words.endswith(f"= {total:.3g}.")


def test_marks_what_shrank_only_at_the_step_where_it_did() -> None:
    marked = [frame.svg.count("kw-masked") for frame in online_softmax(_ROW).frames]
    assert marked == [0, 0, 0, 2, 0, len(_ROW)]


def test_the_last_frame_holds_the_softmax() -> None:
    figure = online_softmax(torch.tensor(_ROW))
    expected = torch.softmax(torch.tensor(_ROW), 0).tolist()
    drawn = _drawn(figure.frames[-1].svg)
    for share in expected:
        assert any(math.isclose(n, share, rel_tol=5e-3) for n in drawn)


def test_starts_with_minus_infinity_without_a_nan() -> None:
    figure = online_softmax([-math.inf, 2.0, -math.inf])
    assert "the total stays 0" in figure.frames[1].words
    assert "total 1." in figure.frames[0].words
    assert "nan" not in figure._repr_html_().lower()


def test_a_row_of_nothing_but_minus_infinity_divides_by_zero() -> None:
    figure = online_softmax([-math.inf, -math.inf])
    assert "0 / 0 is NaN" in figure.frames[-1].words
    assert figure.frames[-1].svg.count(">NaN<") == 2


@pytest.mark.parametrize("row", [[], [0.0] * 13])
def test_refuses_what_it_cannot_show(row: list[float]) -> None:
    with pytest.raises(ValueError, match="1 to 12 numbers"):
        online_softmax(row)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_refuses_what_has_no_softmax(bad: float) -> None:
    with pytest.raises(ValueError, match="NaN"):
        online_softmax([0.0, bad])


def test_large_numbers_do_not_overflow() -> None:
    figure = online_softmax([1e4, -1e4, 1e4])
    assert "maximum 1e+04, total 2." in figure.frames[0].words
