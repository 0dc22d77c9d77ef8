"""Look-back in pictures: whatever comes first, each tile ends with the sum of all."""

from __future__ import annotations

import random
import re
from itertools import accumulate

import pytest

from kernelwright.draw import look_back
from kernelwright.errors import ArgumentError

_SUMS = [3, 1, 4, 1, 5, 9, 2, 6]


def _final(svg: str) -> list[int]:
    """Return what green tiles say."""
    return [int(n) for n in re.findall(r'style="font-weight: 700">(-?\d+)<', svg)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("window", [1, 3, 32])
def test_every_order_ends_with_the_prefix_sum(seed: int, window: int) -> None:
    draw = random.Random(seed)
    moments = [draw.randint(1, 6) for _ in _SUMS]
    frames = look_back(_SUMS, moments, window).frames
    assert _final(frames[-1].svg) == list(accumulate(_SUMS))
    before = [len(_final(frame.svg)) for frame in frames]
    assert before == sorted(before), "what was known is forgotten"


def test_all_at_once_a_wide_window_needs_one_look() -> None:
    assert len(look_back(_SUMS, window=32).frames) == 2
    # One tile at a time, but from the nearest that knows all: not a step a tile.
    assert len(look_back(_SUMS, window=4).frames) == 3


def test_a_late_tile_keeps_those_that_look_at_it() -> None:
    frames = look_back([1, 2, 3], [1, 4, 1], window=2).frames
    assert "tile 2 waits for 1" in frames[1].words
    assert "kw-bad" in frames[1].svg
    assert "all are 6" in frames[-1].words


@pytest.mark.parametrize(
    ("sums", "moments", "window"),
    [
        ([], None, 4),
        ([1] * 11, None, 4),
        ([1, 2], [1], 4),
        ([1], [0], 4),
        ([1], [1], 0),
    ],
)
def test_what_makes_no_picture_is_refused(
    sums: list[int], moments: list[int] | None, window: int
) -> None:
    with pytest.raises(ArgumentError, match="wanted"):
        look_back(sums, moments, window)
