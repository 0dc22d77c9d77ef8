"""An epilogue's fragments: which lane finishes which element, and what that takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelwright.draw import palette
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError

ROWS, COLUMNS, LANES, EACH = 16, 8, 32, 4
BYTES = 2  # of an element in memory
_CELL, _SIDE, _LEFT = 34, 32, 40
_BIAS, _TOP = 54, 118  # where the row of biases and the sums begin
_MEMORY = _LEFT + COLUMNS * _CELL + 84  # where the rows of out begin
_HALF = 20  # an element in memory
_SECTOR = 32 // BYTES

Held = list[list[int]]


def epilogue_map(held: Any) -> Steps:
    """Draw who finishes what of a 16 x 8 product, from bias to store.

    A cell bears the number of its lane. The slider chooses a lane: the four elements in
    its registers are filled, one colour a register, with the biases that they need and
    the places of ``out`` that they go to, in 16 bits.

    Args:
        held: for each of 32 lanes, the elements in its four registers, numbered along
            the rows of 8: a tensor or nested lists, (32, 4).

    Raises:
        ArgumentError: an element that the product has not, or one that nobody holds;
            registers whose pairs are no neighbours, which no store could take at once.
    """
    lanes = [[int(element) for element in lane] for lane in held]
    _check(lanes)
    frames = [
        Frame(
            "",
            "all lanes: 128 sums in 32 x 4 registers; two stores of the warp, a pair "
            "a lane, take them to 16 rows of out",
        )
    ]
    frames += [
        Frame(_drawn(lane, of), _said(lane, of)) for lane, of in enumerate(lanes)
    ]
    return Steps(
        frames,
        _base(lanes),
        _MEMORY + _SECTOR * _HALF + 8,
        _TOP + ROWS * _CELL + 6,
        "Lane",
        "Lane 4 g + t has two neighbours of row g and two of row g + 8: two biases "
        "serve all four. Four lanes fill 16 bytes of a row, half of a 32-byte sector; "
        "the other half belongs to the next 8 columns.",
    )


def _check(lanes: Held) -> None:
    found = sorted(element for lane in lanes for element in lane)
    if len(lanes) != LANES or found != list(range(ROWS * COLUMNS)):
        raise ArgumentError(
            f"the {len(lanes)} lanes hold {len(found)} elements, {len(set(found))} "
            "different ones; wanted 32 lanes that hold each of 0 to 127 once."
        )
    for lane, (a, b, c, d) in enumerate(lanes):
        if a % 2 or c % 2 or b != a + 1 or d != c + 1 or a % COLUMNS != c % COLUMNS:
            raise ArgumentError(
                f"lane {lane} holds elements {a}, {b}, {c} and {d}; wanted two pairs "
                "of neighbours of the same columns."
            )


def _sum_at(element: int) -> tuple[int, int]:
    row, column = divmod(element, COLUMNS)
    return _LEFT + column * _CELL, _TOP + row * _CELL


def _base(lanes: Held) -> str:
    """Draw biases, sums with their lanes, and the rows of memory."""
    pieces = [
        palette.text(_LEFT, 20, "bias", class_="kw-head"),
        palette.text(_LEFT, _TOP - 10, "sums, by lane", class_="kw-head"),
        palette.text(_MEMORY, _TOP - 10, "out: sectors of 32 bytes", class_="kw-head"),
    ]
    for column in range(COLUMNS):
        x = _LEFT + column * _CELL
        pieces.append(palette.box(x, _BIAS - 20, _SIDE, 28, class_="kw-none"))
        pieces.append(palette.text(x + _SIDE / 2, _BIAS, f"b{column}"))
    owner = {element: lane for lane, of in enumerate(lanes) for element in of}
    for element, lane in owner.items():
        x, y = _sum_at(element)
        pieces.append(palette.box(x, y, _SIDE, _SIDE, class_="kw-none"))
        pieces.append(palette.text(x + _SIDE / 2, y + 21, str(lane)))
    for row in range(ROWS):
        y = _TOP + row * _CELL
        name = str(row)
        pieces.append(palette.text(_LEFT - 8, y + 21, name, class_="kw-row"))
        pieces.append(palette.text(_MEMORY - 8, y + 21, f"row {row}", class_="kw-row"))
        for at in range(_SECTOR):
            kind = "kw-none" if at < COLUMNS else "kw-masked kw-past"
            x = _MEMORY + at * _HALF
            pieces.append(palette.box(x, y, _HALF - 2, _SIDE, class_=kind))
    return "".join(pieces)


def _drawn(lane: int, held: Sequence[int]) -> str:
    """Fill a lane's sums, one colour a register, its biases and its stores."""
    pieces = []
    for register, element in enumerate(held):
        column = element % COLUMNS
        x, y = _sum_at(element)
        pieces.append(_filled(x, y, _SIDE, _SIDE, register))
        at = _MEMORY + column * _HALF
        pieces.append(_filled(at, y, _HALF - 2, _SIDE, register))
        if register < 2:
            x = _LEFT + column * _CELL
            pieces.append(_filled(x, _BIAS - 20, _SIDE, 28, 4))
    return "".join(pieces)


def _filled(x: float, y: float, width: float, height: float, colour: int) -> str:
    style = f"--c: {palette.series(colour)}"
    return palette.box(x, y, width, height, class_="kw-used", style=style)


def _said(lane: int, held: Sequence[int]) -> str:
    places = [divmod(element, COLUMNS) for element in held]
    sums = ", ".join(
        f"sum[{register}] is ({row}, {column})"
        for register, (row, column) in enumerate(places)
    )
    column = places[0][1]
    stores = " and ".join(
        f"bytes {BYTES * column} to {BYTES * column + 3} of row {row}"
        for row, column in places[::2]
    )
    return (
        f"lane {lane} = 4 * {lane // 4} + {lane % 4}: {sums}; needs b{column} and "
        f"b{column + 1}, stores {stores}"
    )
