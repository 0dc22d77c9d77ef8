"""A scan in one pass: what each tile has said, and who looks back at whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelwright.draw import palette
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError

_MOST = 10  # tiles that can still be read in one picture
_WIDTH, _LEFT = 492.0, 78.0
_ARCS, _BOX, _HIGH = (
    116.0,
    124.0,
    40.0,
)  # where arcs end, tiles begin, how high they are
_BEFORE = 190.0
_HEIGHT = 206.0


@dataclass
class _Tile:
    """What one block knows at some moment.

    Args:
        sum: of its own numbers.
        known: whether it has added them up.
        before: of what lies before it, so far as it has looked.
        next: the nearest tile that it has not looked at yet.
        done: whether it knows all that lies before it.
        looked: tiles whose numbers it has just added.
        waits_for: tiles that have said nothing yet, which keep it.
    """

    sum: int
    known: bool = False
    before: int = 0
    next: int = -1
    done: bool = False
    looked: list[int] = field(default_factory=list)
    waits_for: list[int] = field(default_factory=list)


def look_back(
    sums: Sequence[int], moments: Sequence[int] | None = None, window: int = 4
) -> Steps:
    """Draw a prefix sum with decoupled look-back, moment by moment.

    The rules are those of the kernel: a tile says its own sum as soon as it has it. It
    reads what ``window`` tiles before have said, and waits while one of these has said
    nothing. From the nearest that knows all it takes that, from those nearer to it
    their own sums; where none knows all, it goes on to the ``window`` before these.

    Args:
        sums: of each tile's numbers, at most 10 tiles.
        moments: when each tile has its own sum, from 1 on; by default all at once.
        window: tiles that are looked at together; a warp's are 32.

    Raises:
        ArgumentError: too many tiles, or not a moment for each.
    """
    given = list(sums)
    when = [1] * len(given) if moments is None else list(moments)
    if not 1 <= len(given) <= _MOST or len(when) != len(given):
        raise ArgumentError(
            f"{len(given)} sums and {len(when)} moments; wanted as many of both, and "
            f"at most {_MOST}, which can be read in one picture."
        )
    if window < 1 or min(when) < 1:
        raise ArgumentError(
            f"window is {window} and the first moment {min(when)}; wanted 1 or more."
        )
    tiles = [_Tile(total, next=at - 1) for at, total in enumerate(given)]
    frames: list[Frame] = []
    moment = 0
    while not all(tile.done for tile in tiles):
        moment += 1
        new = _advance(tiles, when, moment, window)
        frames.append(Frame(_picture(tiles), f"Moment {moment}: {_words(tiles, new)}"))
    return Steps(
        frames,
        _labels(len(given)),
        _WIDTH,
        _HEIGHT,
        "Moment",
        "A dashed tile has said nothing, a blue one what its own numbers add up to, a "
        "green one the sum of all up to it. Arcs are what was just added; a tile with "
        f"a red frame waits. A look takes in {window} tiles. Nobody waits until the "
        "tile before is green: blue is enough.",
        wide=False,
        narrow=True,
    )


def _advance(
    tiles: list[_Tile], when: Sequence[int], moment: int, window: int
) -> list[int]:
    """Let one moment pass, and return the tiles that have just got their own sum."""
    # All look at once, at what was said before.
    said = [tile.known for tile in tiles]
    all_known = [tile.done for tile in tiles]
    for tile in tiles:
        tile.looked, tile.waits_for = [], []
        if not tile.known or tile.done:
            continue
        near = list(range(tile.next, max(tile.next - window, -1), -1))
        tile.waits_for = [other for other in near if not said[other]]
        if tile.waits_for:
            continue
        for other in near:
            tile.looked.append(other)
            tile.before += tiles[other].sum
            if all_known[other]:
                tile.before += tiles[other].before
                tile.done = True
                break
        tile.next -= len(near)
        tile.done = tile.done or tile.next < 0
    new = [at for at, tile in enumerate(tiles) if not tile.known and when[at] <= moment]
    for at in new:
        tiles[at].known = True
        tiles[at].done = at == 0
    return new


def _words(tiles: Sequence[_Tile], new: Sequence[int]) -> str:
    parts = []
    if new:
        one = len(new) == 1
        does = "says its own sum" if one else "say their own sums"
        parts.append(f"tile{'s' * (not one)} {_listed(new)} {does}")
    for at, tile in enumerate(tiles):
        if tile.looked:
            end = f"all are {tile.before + tile.sum}" if tile.done else "not all yet"
            several = "s" * (len(tile.looked) > 1)
            read = f"tile{several} {_listed(tile.looked)}"
            parts.append(f"tile {at} adds {read}: {end}")
        elif tile.waits_for:
            parts.append(f"tile {at} waits for {_listed(tile.waits_for)}")
    return ("; ".join(parts) or "all still add up their own numbers") + "."


def _listed(numbers: Sequence[int]) -> str:
    ordered = sorted(numbers)
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{ordered[0]} to {ordered[-1]}"
    return (
        " and ".join(map(str, ordered))
        if len(ordered) < 3
        else ", ".join(map(str, ordered))
    )


# --- in a picture ------------------------------------------------------------------


def _labels(count: int) -> str:
    step = _step(count)
    parts = [
        palette.text(_LEFT - 8, _BOX - 6, "tile", class_="kw-row"),
        palette.text(_LEFT - 8, _BOX + 26, "has said", class_="kw-row"),
        palette.text(_LEFT - 8, _BEFORE, "before", class_="kw-row"),
    ]
    for at in range(count):
        middle = _LEFT + (at + 0.5) * step
        parts.append(palette.text(middle, _BOX - 6, str(at), class_="kw-tick"))
    return "".join(parts)


def _step(count: int) -> float:
    return (_WIDTH - _LEFT - 6) / count


def _picture(tiles: Sequence[_Tile]) -> str:
    step, parts = _step(len(tiles)), []
    for at, tile in enumerate(tiles):
        left = _LEFT + at * step + 2
        middle = left + step / 2 - 2
        if tile.done:
            look = {"class_": "kw-used", "style": f"--c: {palette.series(2)}"}
            said = str(tile.before + tile.sum)
        elif tile.known:
            look = {"class_": "kw-used", "style": f"--c: {palette.series(0)}"}
            said = str(tile.sum)
        else:
            look, said = {"class_": "kw-masked"}, ""
        parts.append(palette.box(left, _BOX, step - 4, _HIGH, **look))
        if tile.waits_for:
            parts.append(
                palette.box(left + 3, _BOX + 3, step - 10, _HIGH - 6, fill="none",
                            stroke=palette.BAD, stroke_width="2")
            )  # fmt: skip
        heavy = "font-weight: 700" if tile.done else ""
        parts.append(palette.text(middle, _BOX + 25, said, style=heavy))
        if at and (tile.done or tile.before):
            shown = str(tile.before) + ("" if tile.done else " …")
            parts.append(palette.text(middle, _BEFORE, shown, class_="kw-tick"))
        parts += [_arc(at, other, step) for other in tile.looked]
    return "".join(parts)


def _arc(at: int, other: int, step: float) -> str:
    """Draw an arrow from the tile that has said something to the one that reads it."""
    start, end = (_LEFT + (each + 0.5) * step for each in (other, at))
    top = _ARCS - 22 - 26 * (at - other) ** 0.8
    return (
        f'<path fill="none" stroke="{palette.series(1)}" stroke-width="1.8" '
        f'd="M{start:.1f} {_ARCS - 12:g}Q{(start + end) / 2:.1f} {top:.1f} '
        f'{end:.1f} {_ARCS - 12:g}m-4 -7l4 7l4 -7"/>'
    )
