"""Bars of shares: their lengths, the line at 1, and their words."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from kernelwright.draw.bars import Bar, bars

ROWS = [
    Bar("ours", 0.5, "50%"),
    Bar("torch & co", 1.25, "125%", peer=True),
    Bar("not yet", None, "not measured"),
]
SVG = "{http://www.w3.org/2000/svg}"


def test_a_bar_is_as_long_as_its_value() -> None:
    drawing = ElementTree.fromstring(bars(ROWS, "Of the bound"))
    ours, peer = drawing.findall(f"{SVG}rect")
    line = drawing.find(f"{SVG}line")
    assert line is not None
    one = float(line.attrib["x1"])
    assert float(ours.attrib["width"]) == pytest.approx(0.5 * one, rel=1e-3)
    assert float(peer.attrib["width"]) == pytest.approx(1.25 * one, rel=1e-3)
    assert (ours.attrib["class"], peer.attrib["class"]) == ("kw-ours", "kw-peer")
    # The number behind the longest bar is still in the picture.
    right = float(drawing.attrib["viewBox"].split()[2])
    assert float(peer.attrib["width"]) <= right - 60


def test_the_line_at_one_crosses_no_label() -> None:
    drawing = ElementTree.fromstring(bars(ROWS, "Of the bound"))
    feet = [
        float(text.attrib["y"])
        for text in drawing.findall(f"{SVG}text")
        if float(text.attrib["x"]) == 0
    ]
    lines = drawing.findall(f"{SVG}line")
    assert len(lines) == 2  # a bar each; what was not measured has none
    for line in lines:
        top, bottom = float(line.attrib["y1"]), float(line.attrib["y2"])
        # A letter reaches 4 below its foot, and 11 above it.
        assert max(foot for foot in feet if foot <= top) + 4 <= top
        assert bottom <= min(foot for foot in feet if foot > top) - 11


def test_it_says_every_value_in_words() -> None:
    drawing = ElementTree.fromstring(bars(ROWS, "Of the bound"))
    assert drawing.attrib["aria-label"] == (
        "Of the bound. ours: 50%; torch & co: 125%; not yet: not measured."
    )
    shown = [text.text for text in drawing.findall(f"{SVG}text")]
    assert "not measured" in shown and "torch & co" in shown


def test_on_a_ground_of_its_own_no_colour_is_the_pages() -> None:
    drawn = bars(ROWS, "Of the bound", ground=True)
    assert 'fill="#fff"' in drawn
    fixed = set(re.findall(r"(--kw-[a-z]+):", drawn))
    assert set(re.findall(r"var\((--kw-[a-z]+), currentColor", drawn)) <= fixed
    assert bars(ROWS, "Of the bound", ground=True) == drawn  # notebooks stay in step


def test_what_is_no_share_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one bar"):
        bars([], "Of the bound")
    for value in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"ours: wanted a share >= 0, got {value}"):
            bars([Bar("ours", value, "")], "Of the bound")
