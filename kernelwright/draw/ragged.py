"""Tiles over the rows of ragged experts, and which program has which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernelwright.draw import palette
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError

_MOST_EXPERTS, _MOST_TILES = 12, 24  # that can still be read in one picture
_WIDTH, _LEFT, _TOP = 492.0, 118.0, 30.0
_ROW, _HIGH = 27.0, 20.0


@dataclass(frozen=True)
class _Tile:
    """A tile of rows, of which the last may be another expert's."""

    expert: int
    first: int
    end: int


def expert_tiles(ends: Iterable[int], tall: int = 16, programs: int = 0) -> Steps:
    """Draw which expert and which rows each program finds.

    Args:
        ends: where each expert's rows end, rising, at most 12 experts.
        tall: rows of a tile.
        programs: how many were launched; by default as many as there could be tiles,
            however the rows are distributed: rows over ``tall``, and one an expert.

    Raises:
        ArgumentError: ends do not rise, or there is too much for one picture.
    """
    given = [int(end) for end in ends]
    begins = [0, *given[:-1]]
    if not 1 <= len(given) <= _MOST_EXPERTS or given != sorted(given) or given[0] < 0:
        raise ArgumentError(
            f"ends are {given}; wanted 1 to {_MOST_EXPERTS} rising row numbers."
        )
    tiles = [
        _Tile(expert, first, end)
        for expert, (begin, end) in enumerate(zip(begins, given, strict=True))
        for first in range(begin, end, tall)
    ]
    launched = programs or -(-given[-1] // tall) + len(given)
    if max(len(tiles), launched) > _MOST_TILES:
        raise ArgumentError(
            f"{max(len(tiles), launched)} programs; wanted at most {_MOST_TILES}, "
            "which can be read in one picture: draw fewer rows, or taller tiles."
        )
    frames = [Frame(_all(tiles, tall, given), _overview(tiles, tall, launched))]
    for program in range(launched):
        frames.append(_frame(program, tiles, tall, given))
    return Steps(
        frames,
        _labels(begins, given),
        _WIDTH,
        _TOP + len(given) * _ROW + 30,
        "Program",
        "Each expert's rows, one after the other, and the tiles that cover them; the "
        "number in a tile is its program's. Every expert begins a new tile, so its "
        "last tile may hang over (dashed): those rows belong to the next expert, and "
        "are masked.",
        wide=False,
        narrow=True,
    )


def _overview(tiles: Sequence[_Tile], tall: int, launched: int) -> str:
    held = sum(min(tile.end - tile.first, tall) for tile in tiles)
    covered = len(tiles) * tall
    share = held / covered if covered else 0.0
    return (
        f"{len(tiles)} tiles of {tall} rows for {held} rows, {share:.0%} of what "
        f"they cover. {launched} programs are launched, {launched - len(tiles)} of "
        "them find no tile."
    )


def _frame(
    program: int, tiles: Sequence[_Tile], tall: int, ends: Sequence[int]
) -> Frame:
    if program >= len(tiles):
        words = f"Program {program}: past the last expert's last tile, so it ends."
        return Frame(_all(tiles, tall, ends, faint=True), words)
    tile = tiles[program]
    held = min(tile.end - tile.first, tall)
    words = (
        f"Program {program}: expert {tile.expert}, rows {tile.first} to "
        f"{tile.first + held - 1}; {held} of {tall} rows are its own."
    )
    picture = _all(tiles, tall, ends, faint=True) + _tile(
        program, tile, tall, ends[-1], palette.series(1)
    )
    return Frame(picture, words)


def _labels(begins: Sequence[int], ends: Sequence[int]) -> str:
    parts = [palette.text(4, 16, "expert: rows", class_="kw-head")]
    for expert, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        y = _TOP + expert * _ROW
        said = f"{expert}: {end - begin}"
        parts.append(palette.text(_LEFT - 14, y + 15, said, class_="kw-row"))
        wide = _x(end, ends[-1]) - _x(begin, ends[-1])
        if end > begin:
            parts.append(
                palette.box(_x(begin, ends[-1]), y, wide, _HIGH, class_="kw-shared")
            )
    floor = _TOP + len(ends) * _ROW + 14
    for row in (0, ends[-1]):
        parts.append(
            palette.text(_x(row, ends[-1]), floor, f"row {row}", class_="kw-tick")
        )
    return "".join(parts)


def _all(
    tiles: Sequence[_Tile], tall: int, ends: Sequence[int], *, faint: bool = False
) -> str:
    drawn = "".join(
        _tile(program, tile, tall, ends[-1], palette.series(0))
        for program, tile in enumerate(tiles)
    )
    return f'<g opacity=".45">{drawn}</g>' if faint else drawn


def _tile(program: int, tile: _Tile, tall: int, rows: int, colour: str) -> str:
    y = _TOP + tile.expert * _ROW
    left = _x(tile.first, rows)
    own = _x(min(tile.first + tall, tile.end), rows)
    over = _x(tile.first + tall, rows)
    parts = [palette.box(left, y, own - left, _HIGH, class_="kw-used",
                         style=f"--c: {colour}")]  # fmt: skip
    if over > own:
        parts.append(palette.box(own, y, over - own, _HIGH, class_="kw-masked"))
    parts.append(palette.text((left + over) / 2, y + 15, str(program)))
    return "".join(parts)


def _x(row: int, rows: int) -> float:
    """Return where a row begins; a tile may hang over behind the last one."""
    return _LEFT + (_WIDTH - _LEFT - 62) * row / max(rows, 1)
