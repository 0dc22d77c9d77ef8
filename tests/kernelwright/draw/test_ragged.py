"""Tiles over ragged experts: each row in one tile, each tile of one expert."""

from __future__ import annotations

import re

import pytest

from kernelwright.draw import expert_tiles
from kernelwright.errors import ArgumentError

_FOUND = re.compile(r"Program (\d+): expert (\d+), rows (\d+) to (\d+); (\d+) of 16")


@pytest.mark.parametrize(
    "ends", [[37, 37, 75, 80, 121, 160], [0, 0, 5], [16], [1, 2, 3], [16, 32, 48]]
)
def test_each_row_is_in_one_tile_of_its_expert(ends: list[int]) -> None:
    frames = expert_tiles(ends).frames
    rows: list[int] = []
    for frame in frames[1:]:
        found = _FOUND.match(frame.words)
        if found is None:
            assert "past the last expert" in frame.words
            continue
        _, expert, first, last, held = map(int, found.groups())
        begin = ends[expert - 1] if expert else 0
        assert begin <= first <= last < ends[expert] and held == last - first + 1
        rows += range(first, last + 1)
    assert rows == list(range(ends[-1]))
    assert len(frames) - 1 == -(-ends[-1] // 16) + len(ends)


def test_it_says_how_full_tiles_are() -> None:
    words = expert_tiles([16, 24], programs=2).frames[0].words
    assert "2 tiles of 16 rows for 24 rows, 75% of what they cover" in words
    assert "2 programs are launched, 0 of them" in words


def test_no_rows_are_no_tiles() -> None:
    words = expert_tiles([0, 0]).frames[0].words
    assert words.startswith("0 tiles") and "2 of them find no tile" in words


@pytest.mark.parametrize("ends", [[], [3, 2], [-1], list(range(13)), [16 * 30]])
def test_what_makes_no_picture_is_refused(ends: list[int]) -> None:
    with pytest.raises(ArgumentError, match="wanted"):
        expert_tiles(ends)
