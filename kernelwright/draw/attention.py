"""Attention in pictures: which tiles a kernel visits, and how its memory grows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelwright.draw import palette
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError
from kernelwright.measure.units import show_bytes
from kernelwright.trace.report import TraceReport

_CELL, _LEFT, _TOP = 30.0, 132.0, 64.0


def tile_visits(
    trace: Callable[[int], TraceReport],
    blocks: int,
    tiles: int,
    tile_bytes: int,
    buffer: str = "k",
    queries: int = 64,
    keys: int = 16,
    *,
    backward: bool = False,
) -> Steps:
    """Draw in which order each block of an attention kernel visits the keys' tiles.

    Args:
        trace: traces the kernel for one block of queries, by its number.
        blocks: how many there are.
        tiles: tiles of keys in all.
        tile_bytes: bytes of one of them.
        buffer: the parameter that holds the keys.
        queries: of a block, for the labels.
        keys: of a tile, likewise.
        backward: whether a block owns keys and visits the queries' tiles; ``queries``
            and ``keys`` then count those that it owns and those of a tile.

    Returns:
        A figure whose steps are the tiles that the blocks visit at the same time.

    Raises:
        ArgumentError: a trace does not hold all that its block read of the keys.
    """
    visits = [_visited(trace(b), buffer, tile_bytes, tiles) for b in range(blocks)]
    seen = sum(len(set(order)) for order in visits)
    width = _LEFT + tiles * _CELL + 16
    height = _TOP + blocks * (_CELL + 6) + 24
    skipped = 1 - seen / max(1, blocks * tiles)
    words = f"{seen} of {blocks * tiles} tiles are visited, {skipped:.0%} are skipped."
    frames = [Frame("", f"{words} The number is a tile's place in its block's order.")]
    for step in range(max(map(len, visits), default=0)):
        drawn = "".join(
            _cell(block, order[step], str(step + 1), block)
            for block, order in enumerate(visits)
            if step < len(order)
        )
        frames.append(Frame(drawn, _words(step, visits, queries, keys, backward)))
    return Steps(
        frames,
        _grid(blocks, tiles, queries, keys, "query" if backward else "key"),
        width,
        height,
        "Step",
        f"{'Keys' if backward else 'Queries'} downwards, "
        f"{'queries' if backward else 'keys'} to the right; a cell is a tile that a "
        "block takes from memory, and its number when. Empty cells are never brought.",
        overview=True,
    )


def _visited(
    report: TraceReport, buffer: str, tile_bytes: int, tiles: int
) -> list[int]:
    """Return the tiles of the keys in the order in which they were read."""
    order: list[int] = []
    found = 0
    for request in report.accesses(space="global"):
        places = [at for _, _, name, at in request.lanes if name == buffer]
        if request.op != "store" and places:
            found += 1
            tile = min(places) // tile_bytes
            if tile < tiles and tile not in order:
                order.append(tile)
    # A trace keeps the first requests of each access whole, and counts the others.
    made = sum(a.requests for a in report.lines if (a.buffer, a.op) == (buffer, "load"))
    if found < made:
        raise ArgumentError(
            f"tile_visits got a trace that keeps {found:,} of {made:,} reads of "
            f"{buffer}; wanted all of them, to say which tiles they touch: trace "
            "fewer keys"
        )
    return order


def _words(
    step: int,
    visits: Sequence[Sequence[int]],
    queries: int,
    keys: int,
    backward: bool,
) -> str:
    own, other = ("keys", "queries") if backward else ("queries", "keys")
    busy = [
        f"{own} {b * queries}–{(b + 1) * queries - 1} take {other} "
        f"{order[step] * keys}–{(order[step] + 1) * keys - 1}"
        for b, order in enumerate(visits)
        if step < len(order)
    ]
    done = sum(step >= len(order) for order in visits)
    said = "; ".join([*busy[:2], *([f"{len(busy) - 2} more"] if len(busy) > 2 else [])])
    rest = f" {done} block{'s are' if done != 1 else ' is'} done." if done else ""
    return f"Step {step + 1}: {said}.{rest}"


def _cell(block: int, tile: int, label: str, colour: int) -> str:
    x, y = _LEFT + tile * _CELL, _TOP + block * (_CELL + 6)
    return palette.box(
        x + 2, y, _CELL - 4, _CELL, class_="kw-used",
        style=f"--c: {palette.series(colour)}",
    ) + palette.text(x + _CELL / 2, y + 20, label)  # fmt: skip


def _grid(blocks: int, tiles: int, queries: int, keys: int, of: str) -> str:
    head = f"{of} tiles, in order of memory"
    parts = [palette.text(8, 24, head, class_="kw-head")]
    for tile in range(0, tiles, 4):
        x = _LEFT + tile * _CELL + _CELL / 2
        parts.append(palette.text(x, _TOP - 10, str(tile * keys), class_="kw-tick"))
    for block in range(blocks):
        y = _TOP + block * (_CELL + 6)
        label = f"{block * queries} to {(block + 1) * queries - 1}"
        parts.append(palette.text(_LEFT - 10, y + 20, label, class_="kw-row"))
        for tile in range(tiles):
            x = _LEFT + tile * _CELL
            parts.append(palette.box(x + 2, y, _CELL - 4, _CELL, class_="kw-none"))
    return "".join(parts)


# --- memory against length ---------------------------------------------------------

_WIDTH, _HEIGHT = 720.0, 400.0
_AXIS = (96.0, 690.0, 46.0, 346.0)  # left, right, top, bottom


def memory_growth(
    measured: Mapping[str, Mapping[int, int]],
    lengths: Sequence[int],
    limit: tuple[str, float],
    heads: int = 1,
) -> Steps:
    """Draw memory against sequence length on two logarithmic axes.

    Args:
        measured: bytes by length, of each way to attend, for one head.
        lengths: where the figure may stand; past what was measured the curve
            ``a n + b n^2`` through the last two measurements continues.
        limit: a memory's name and its bytes, drawn as a line.
        heads: how many heads there are in all; what was measured is multiplied.
    """
    curves = {
        name: {n: heads * _at(points, n) for n in lengths}
        for name, points in measured.items()
    }
    low = min(min(c.values()) for c in curves.values())
    high = max(limit[1], max(max(c.values()) for c in curves.values()))
    place = _Place(lengths[0], lengths[-1], max(low, 1.0), high)
    frames = [Frame("", f"{heads} head{'s' * (heads > 1)}; choose a length.")]
    for n in lengths:
        frames.append(_at_length(n, curves, place, limit, measured))
    last = max(max(points) for points in measured.values())
    return Steps(
        frames,
        _curves(curves, place, limit, measured),
        _WIDTH,
        _HEIGHT,
        "Length",
        f"Memory beyond the inputs, {heads} head{'s' * (heads > 1)}. Filled points "
        f"are measured, up to {last:,} tokens; hollow ones continue a n + b n^2. Twice "
        "the length is four times the matrix of scores, and twice the rest.",
    )


class _Place:
    """Where a length and a number of bytes stand in the picture."""

    def __init__(self, first: int, last: int, low: float, high: float) -> None:
        self.first, self.last = math.log2(first), math.log2(last)
        self.low, self.high = math.floor(math.log2(low)), math.ceil(math.log2(high))

    def x(self, length: float) -> float:
        left, right = _AXIS[:2]
        share = (math.log2(length) - self.first) / max(self.last - self.first, 1e-9)
        return left + share * (right - left)

    def y(self, size: float) -> float:
        top, bottom = _AXIS[2:]
        share = (math.log2(max(size, 1.0)) - self.low) / max(self.high - self.low, 1)
        return bottom - share * (bottom - top)


def _at(points: Mapping[int, int], length: int) -> float:
    """Return what was measured, or what the curve through the last two points says."""
    if length in points:
        return float(points[length])
    (n, small), (m, large) = sorted(points.items())[-2:]
    square = (large / m - small / n) / (m - n)
    linear = small / n - square * n
    return max(1.0, linear * length + square * length**2)


def _curves(
    curves: Mapping[str, Mapping[int, float]],
    place: _Place,
    limit: tuple[str, float],
    measured: Mapping[str, Mapping[int, int]],
) -> str:
    left, right, _, bottom = _AXIS
    parts = [palette.text(8, 24, "bytes beyond the inputs", class_="kw-head")]
    for power in range(place.low, place.high + 1):
        if power % 5 == 0:
            y = place.y(2.0**power)
            parts.append(_line(left, y, right, y, palette.LINE, opacity=0.35))
            label = show_bytes(2**power)
            parts.append(palette.text(left - 8, y + 5, label, class_="kw-row"))
    for n in next(iter(curves.values())):
        at = palette.text(place.x(n), bottom + 20, _short(n), class_="kw-tick")
        parts.append(at)
    parts.append(
        palette.text((left + right) / 2, bottom + 44, "tokens", class_="kw-tick")
    )
    y = place.y(limit[1])
    parts.append(_line(left, y, right, y, palette.BAD, dashes="6 4"))
    parts.append(
        palette.text(left + 8, y - 6, limit[0], style="text-anchor: start")
    )  # fmt: skip
    for number, (name, curve) in enumerate(curves.items()):
        colour = palette.series(1 - number if number < 2 else number)
        path = " ".join(f"{place.x(n):g},{place.y(b):g}" for n, b in curve.items())
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" '
            'stroke-width="2"/>'
        )
        for n, size in curve.items():
            fill = colour if n in measured[name] else "none"
            parts.append(
                f'<circle cx="{place.x(n):g}" cy="{place.y(size):g}" r="4.5" '
                f'fill="{fill}" stroke="{colour}" stroke-width="1.6"/>'
            )
        n, size = list(curve.items())[-2]
        parts.append(
            palette.text(
                place.x(n) - 12, place.y(size) - 14 + 40 * (number > 0), name,
                style="text-anchor: end; font-size: 16px",
            )
        )  # fmt: skip
    return "".join(parts)


def _at_length(
    n: int,
    curves: Mapping[str, Mapping[int, float]],
    place: _Place,
    limit: tuple[str, float],
    measured: Mapping[str, Mapping[int, int]],
) -> Frame:
    x = place.x(n)
    drawn = _line(x, _AXIS[2], x, _AXIS[3], palette.INK, dashes="2 3")
    said = []
    for name, curve in curves.items():
        drawn += (
            f'<circle cx="{x:g}" cy="{place.y(curve[n]):g}" r="8" fill="none" '
            f'stroke="{palette.INK}" stroke-width="1.6"/>'
        )
        how = "" if n in measured[name] else " (continued)"
        fits = "" if curve[n] <= limit[1] else f", more than {limit[0]}"
        said.append(f"{name} {show_bytes(int(curve[n]))}{how}{fits}")
    first, second = (list(curve.values()) for curve in list(curves.values())[:2])
    at = list(next(iter(curves.values()))).index(n)
    times = f"{first[at] / second[at]:,.1f} times as much"
    return Frame(drawn, f"{n:,} tokens: {'; '.join(said)}. {times}.")


def _line(
    x: float, y: float, to_x: float, to_y: float, colour: str, dashes: str = "",
    opacity: float = 1.0,
) -> str:  # fmt: skip
    dash: Any = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{colour}" '
        f'stroke-opacity="{opacity:g}"{dash}/>'
    )


def _short(n: int) -> str:
    return f"{n // 1024}K" if n >= 1024 else str(n)
