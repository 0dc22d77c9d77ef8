"""Shares of a bound as bars: how far each kernel is from what the chip could do."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.draw import palette

_WIDTH = 480.0  # a phone shows this at three quarters, and 14 px can still be read
_ROOM = 64.0  # for the number behind the longest bar
_TOP, _ROW, _THICK = 46.0, 40.0, 12.0

# For a page that defines no colours and has a ground of its own: an image's.
_ON_WHITE = "--kw-ink: #1f2430; --kw-muted: #5b6472; --kw-line: #9aa3b2"

_STYLE = f"""
.kw-bars text {{ fill: {palette.INK}; font: 14px system-ui, sans-serif; }}
.kw-bars .kw-muted {{ fill: {palette.MUTED}; }}
.kw-bars .kw-ours {{ fill: {palette.SERIES[0]}; }}
.kw-bars .kw-peer {{ fill: {palette.MUTED}; }}
.kw-bars line {{ stroke: {palette.SERIES[1]}; stroke-width: 1.5; }}
"""


@dataclass(frozen=True)
class Bar:
    """One bar.

    Args:
        label: what was measured.
        value: its length, 1 being the line; None where it was not measured.
        said: the value in words, written behind the bar.
        peer: somebody else's kernel, in another colour.
    """

    label: str
    value: float | None
    said: str
    peer: bool = False


def bars(entries: Sequence[Bar], title: str, *, ground: bool = False) -> str:
    """Draw bars from the left, and where a value is 1 a line that spares the labels.

    Args:
        entries: from top to bottom, at least one.
        title: what the line at 1 is, such as ``Of the bound``.
        ground: lay a white ground and fix the colours, for an image that stands on
            a page whose colours are not known.

    Returns:
        The SVG, whose label says every value in words.

    Raises:
        ValueError: there is no bar, or a value is negative or no number.
    """
    if not entries:
        raise ValueError("there is nothing to draw: give at least one bar")
    for entry in entries:
        if entry.value is not None and not 0 <= entry.value < math.inf:
            raise ValueError(f"{entry.label}: wanted a share >= 0, got {entry.value}")
    most = max([1.0, *(entry.value or 0.0 for entry in entries)])
    scale = (_WIDTH - _ROOM) / most
    height = _TOP + len(entries) * _ROW
    parts = [
        palette.text(0, 16, f"{title} (dashed: 100%)", class_="kw-muted"),
        *(_row(entry, _TOP + at * _ROW, scale) for at, entry in enumerate(entries)),
    ]
    return _svg(parts, f"{title}. {words(entries)}", height, ground)


def words(entries: Sequence[Bar]) -> str:
    """Say every bar in words, for whoever cannot see them."""
    return "; ".join(f"{entry.label}: {entry.said}" for entry in entries) + "."


def _row(entry: Bar, y: float, scale: float) -> str:
    label = palette.text(0, y, entry.label)
    if entry.value is None:
        return label + palette.text(0, y + 17, entry.said, class_="kw-muted")
    length = max(1.0, entry.value * scale)
    # A number that would stand on the line stands behind it.
    behind = scale if scale - _ROOM < length < scale else length
    return (
        label
        + f'<line x1="{scale:g}" x2="{scale:g}" y1="{y + 5:g}" y2="{y + 22:g}"/>'
        + palette.box(
            0, y + 6, length, _THICK, class_="kw-peer" if entry.peer else "kw-ours"
        )
        + palette.text(behind + 6, y + 17, entry.said)
    )


def _svg(parts: Sequence[str], said: str, height: float, ground: bool) -> str:
    margin = 12 if ground else 0
    width = _WIDTH + 2 * margin
    size = f'style="max-width: {_WIDTH:g}px; width: 100%; height: auto"'
    under = ""
    if ground:
        size = f'width="{width:g}" height="{height:g}" style="{_ON_WHITE}"'
        under = palette.box(-margin, 0, width, height, fill="#fff")
    return (
        f'<svg class="kw-bars" viewBox="{-margin} 0 {width:g} {height:g}" '
        f'{size} role="img" aria-label="{html.escape(said)}" '
        'xmlns="http://www.w3.org/2000/svg">'
        f"<style>{_STYLE}</style>{under}{''.join(parts)}</svg>"
    )
