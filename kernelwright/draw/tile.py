"""The tile's layout: in which bank of shared memory each of its elements lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from kernelwright.draw import palette
from kernelwright.draw.banks import BANKS, WORD, ideal_wavefronts, wavefronts
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError

Swizzle = Callable[[int, int], int]
_CELL, _SIDE, _LEFT, _TOP, _BAR = 22, 20, 84, 34, 40
_MOST_ROWS, _MOST_COLUMNS = 64, 64


@dataclass(frozen=True)
class Read:
    """A warp's request for one column of a tile: lane ``r`` wants row ``r``.

    Args:
        lanes: as of the trace's requests: lane, thread, buffer, byte.
        width: bytes a lane.
    """

    lanes: Sequence[tuple[int, tuple[int, int, int], str, int]]
    width: int


@dataclass(frozen=True)
class Tile:
    """A tile of shared memory.

    Args:
        rows, columns: its elements.
        padding: elements at the end of each row that nobody uses.
        place: where in its row element (row, column) is kept.
        width: bytes an element.
    """

    rows: int
    columns: int
    padding: int
    place: Swizzle
    width: int

    @property
    def pitch(self) -> int:
        """Elements from one row to the next."""
        return self.columns + self.padding

    def byte(self, row: int, column: int) -> int:
        """Return where an element begins."""
        return (row * self.pitch + self.place(row, column)) * self.width

    def bank(self, row: int, column: int) -> int:
        """Return the bank of an element, of its first word if it has several."""
        return self.byte(row, column) // WORD % BANKS

    def read(self, column: int) -> Read:
        """Return the request of a warp that reads a column."""
        rows = range(min(self.rows, 32))
        lanes = [(row, (row, 0, 0), "tile", self.byte(row, column)) for row in rows]
        return Read(lanes, self.width)


def tile_layout(
    rows: int,
    columns: int,
    *,
    padding: int = 0,
    swizzle: Literal["xor"] | Swizzle | None = None,
    element_bytes: int = 4,
) -> Steps:
    """Draw a tile of shared memory: the bank of each element, and columns being read.

    A cell bears the number of its bank and is shaded by it. The slider lets a warp
    read one column after another; red elements wait, their bank being busy, and the
    bars below say how many words each bank has to serve.

    Args:
        rows: of the tile, at most 64.
        columns: of the tile, at most 64.
        padding: unused elements at the end of each row: ``tile[32][32 + padding]``.
        swizzle: where in its row element (row, column) is kept; ``"xor"`` means
            ``column ^ row``.
        element_bytes: 1, 2, 4, 8 or 16.

    Raises:
        ArgumentError: a tile that is too large for a picture, or a swizzle that puts
            two elements in one place or one outside of its row.
    """
    place = _xor(columns) if swizzle == "xor" else swizzle or _straight
    tile = Tile(rows, columns, padding, place, element_bytes)
    _check(tile)
    counts = [len(wavefronts(tile.read(c))) for c in range(columns)]
    best = ideal_wavefronts(tile.read(0))
    frames = [Frame(_shaded(tile), _overview(tile))]
    frames += [
        Frame(_column(tile, c), _words(tile, c, counts[c], best))
        for c in range(columns)
    ]
    return Steps(
        frames,
        _base(tile),
        _LEFT + max(tile.pitch, 32) * _CELL + 6,
        _bars_top(tile) + _BAR + 24,
        "Column",
        f"{_name(tile, swizzle)}: {_verdict(counts, best)}",
    )


def _straight(row: int, column: int) -> int:
    return column


def _xor(columns: int) -> Swizzle:
    if columns & (columns - 1):
        raise ArgumentError(
            f"the swizzle column ^ row needs a power of two for its columns; got "
            f"{columns}. Pass a function of row and column instead."
        )
    return lambda row, column: column ^ row % columns


def _check(tile: Tile) -> None:
    if not (0 < tile.rows <= _MOST_ROWS and 0 < tile.columns <= _MOST_COLUMNS):
        raise ArgumentError(
            f"the tile is {tile.rows} x {tile.columns}; a picture holds 1 to "
            f"{_MOST_ROWS} rows and 1 to {_MOST_COLUMNS} columns."
        )
    if not 0 <= tile.padding <= BANKS:
        raise ArgumentError(f"padding is {tile.padding}; wanted 0 to {BANKS} elements.")
    if tile.width not in (1, 2, 4, 8, 16):
        raise ArgumentError(
            f"element_bytes is {tile.width}; a lane asks for 1, 2, 4, 8 or 16 bytes."
        )
    for row in range(tile.rows):
        places = [tile.place(row, column) for column in range(tile.columns)]
        if len(set(places)) < tile.columns or not set(places) <= set(range(tile.pitch)):
            raise ArgumentError(
                f"the swizzle does not keep row {row} apart: it puts {tile.columns} "
                f"elements at {len(set(places))} places from {min(places)} to "
                f"{max(places)}; wanted one place each, from 0 to {tile.pitch - 1}."
            )


def _at(tile: Tile, row: int, column: int) -> tuple[int, int]:
    return _LEFT + tile.place(row, column) * _CELL, _TOP + row * _CELL


def _shaded(tile: Tile) -> str:
    """Shade each element by its bank, or if that only follows its place, by column."""
    shades: dict[int, list[tuple[int, int]]] = {}
    for row in range(tile.rows):
        for column in range(tile.columns):
            shade = column if _is_swizzled(tile) else tile.bank(row, column)
            shades.setdefault(shade, []).append(_at(tile, row, column))
    return "".join(
        f'<path fill="{palette.series(0)}" fill-opacity="{0.06 + shade % 32 / 50:.2f}" '
        f'd="{_squares(found)}"/>'
        for shade, found in sorted(shades.items())
    )


def _column(tile: Tile, column: int) -> str:
    """Mark the elements of a column; those of a bank after its first one wait."""
    free: list[tuple[int, int]] = []
    waiting: list[tuple[int, int]] = []
    together = {8: 16, 16: 8}.get(tile.width, 32)
    served: dict[int, set[int]] = {}
    load: dict[int, int] = {}
    for row in range(min(tile.rows, 32)):
        if row % together == 0:
            served = {}
        word, bank = tile.byte(row, column) // WORD, tile.bank(row, column)
        words = served.setdefault(bank, set())
        (waiting if words - {word} else free).append(_at(tile, row, column))
        for more in range(max(1, tile.width // WORD)):
            load[bank + more] = load.get(bank + more, 0) + (word not in words)
        words.add(word)
    best = ideal_wavefronts(tile.read(column))
    return _marked(_squares(free), _squares(waiting)) + _bars(tile, load, best)


def _marked(free: str, waiting: str) -> str:
    """Return what is served at once and what waits; one path each, or none."""
    style = f"--c: {palette.series(0)}"
    parts = []
    if free:
        parts.append(f'<path class="kw-used" style="{style}" d="{free}"/>')
    if waiting:
        parts.append(f'<path class="kw-wrong" d="{waiting}"/>')
    return "".join(parts)


def _bars(tile: Tile, load: dict[int, int], best: int) -> str:
    """Draw how many words each bank serves, a bar a bank."""
    bottom, most = _bars_top(tile) + _BAR, max(load.values())
    bars: dict[bool, list[str]] = {False: [], True: []}
    for bank, words in load.items():
        height = round(_BAR * words / max(most, 4))
        x = _LEFT + bank * _CELL
        bars[words > best].append(f"M{x} {bottom}v-{height}h{_SIDE}v{height}z")
    tallest = max(load, key=lambda bank: load[bank])
    middle = _LEFT + tallest * _CELL + _SIDE / 2
    top = bottom - _BAR * most / max(most, 4) - 4
    return _marked("".join(bars[False]), "".join(bars[True])) + palette.text(
        middle, top, str(most)
    )


def _bars_top(tile: Tile) -> int:
    return _TOP + tile.rows * _CELL + 34


def _base(tile: Tile) -> str:
    head = "the tile as it lies in memory; a cell's number is its bank"
    parts = [palette.text(_LEFT, 20, head, class_="kw-head")]
    for row in range(0, tile.rows, 4):
        y = _TOP + row * _CELL + 16
        parts.append(palette.text(_LEFT - 8, y, f"row {row}", class_="kw-row"))
    top = _bars_top(tile)
    parts.append(palette.text(_LEFT - 8, top + _BAR, "words", class_="kw-row"))
    for bank in range(0, BANKS, 4):
        x = _LEFT + bank * _CELL + _SIDE / 2
        parts.append(palette.text(x, top + _BAR + 18, str(bank), class_="kw-tick"))
    ends = f"M{_LEFT} {top + _BAR}h{BANKS * _CELL}"
    numbers = [
        palette.text(x + _SIDE / 2, y + 15, str(tile.bank(row, column)))
        for row in range(tile.rows)
        for column in range(tile.columns)
        for x, y in [_at(tile, row, column)]
    ]
    places = [
        (_LEFT + at * _CELL, _TOP + row * _CELL)
        for row in range(tile.rows)
        for at in range(tile.pitch)
    ]
    grid = f'<path class="kw-none" d="{_squares(places)}{ends}"/>'
    return "".join(parts) + grid + "".join(numbers)


def _squares(places: Sequence[tuple[int, int]]) -> str:
    return "".join(f"M{x} {y}h{_SIDE}v{_SIDE}h-{_SIDE}z" for x, y in places)


def _name(tile: Tile, swizzle: Literal["xor"] | Swizzle | None) -> str:
    pitch = f"{tile.columns} + {tile.padding}" if tile.padding else str(tile.columns)
    kind = {None: "", "xor": ", swizzled by an exclusive or"}.get(
        swizzle if swizzle == "xor" else None, ""
    )
    if callable(swizzle):
        kind = ", swizzled"
    return f"tile[{tile.rows}][{pitch}] of {tile.width} bytes each{kind}"


def _is_swizzled(tile: Tile) -> bool:
    return tile.place is not _straight


def _overview(tile: Tile) -> str:
    banks = _counted(len(_banks(tile, 0)), "bank")
    shade = "column" if _is_swizzled(tile) else "bank"
    return f"all elements, shaded by {shade}: column 0 lies in {banks}"


def _banks(tile: Tile, column: int) -> set[int]:
    """Return the banks of a column, of all words of its elements."""
    return {
        tile.bank(row, column) + more
        for row in range(min(tile.rows, 32))
        for more in range(max(1, tile.width // WORD))
    }


def _words(tile: Tile, column: int, count: int, best: int) -> str:
    elements = _counted(min(tile.rows, 32), "element")
    banks = _counted(len(_banks(tile, column)), "bank")
    waves = _counted(count, "wavefront")
    return (
        f"a warp reads column {column}: {elements} in {banks}, {waves} ({best} at best)"
    )


def _verdict(counts: Sequence[int], best: int) -> str:
    worst = max(counts)
    if worst == best:
        return (
            f"a warp reads every column in {_counted(best, 'wavefront')}, the best "
            "there is."
        )
    least = min(counts)
    often = str(worst) if least == worst else f"{least} to {worst}"
    return (
        f"a warp that reads a column needs {often} wavefronts where {best} could do: "
        "elements of a column share banks."
    )


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
