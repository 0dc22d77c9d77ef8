"""Positions computed while a model generates: counted, drawn and said alike."""

from __future__ import annotations

import pytest

from kernelwright.draw import explore_positions
from kernelwright.draw.positions import passes
from kernelwright.errors import ArgumentError


def test_without_a_cache_everything_is_computed_again() -> None:
    assert [len(row) for row in passes(4, 3, "nothing kept")] == [4, 5, 6]
    words = explore_positions(prompts=(4,), new=3).picture(4, "nothing kept").words
    assert "3 passes compute 15 positions, 2.5 times the 6" in words


def test_a_cache_computes_each_position_once() -> None:
    for way, count in (("KV cache", 9), ("two guesses a pass", 4)):
        rows = passes(4, 9, way)
        assert [p for row in rows for p in row] == list(range(12))
        assert len(rows) == count


def test_what_is_computed_is_a_full_box() -> None:
    picture = explore_positions(prompts=(4,), new=3).picture(4, "KV cache")
    frame = picture.drawn.frames[0].svg
    assert frame.count("kw-used") == 6 and frame.count("kw-none") == 4 + 5


def test_too_much_for_a_picture_is_refused() -> None:
    with pytest.raises(ArgumentError, match="24 in all"):
        explore_positions(prompts=(20,), new=9)
