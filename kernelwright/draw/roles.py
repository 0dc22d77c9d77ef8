"""Who works when in an attention kernel: one warpgroup, overlapped, or two in turns."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.draw import palette
from kernelwright.draw.steps import Frame, Steps

_UNIT, _HIGH, _LEFT, _TOP, _ROW, _TIME = 64.0, 26, 124, 44, 40, 8
Bar = tuple[str, float, float, str]
"""A row, when it begins, how long it takes, what it says."""
_S, _P, _V = 0, 1, 2  # colours: scores, softmax, products with values
_ROWS = ("tensor cores", "exponentials")


def role_timeline() -> Steps:
    """Draw how tensor cores and exponentials follow each other in three schedules.

    For heads of 64, where by chapter 10's prediction a tile's two products take as long
    as its exponentials. In the three frames a warpgroup does one after the other; takes
    its exponentials while its last product runs; and has a second one beside it.
    """
    schedules = (
        ("one after the other", 2.0, _repeated(2.0, _in_order)),
        ("softmax of a tile while the last P V is multiplied", 1.5,
         _repeated(1.5, _overlapped)),
        ("two warpgroups that take turns", 2.0, _repeated(2.0, _in_turns)),
    )  # fmt: skip
    return Steps(
        [
            Frame(_bars(bars), _words(name, each, bars))
            for name, each, bars in schedules
        ],
        _base(),
        _LEFT + _TIME * _UNIT + 8,
        _TOP + len(_ROWS) * _ROW + 8,
        "Schedule",
        "S i is the product of queries and keys of tile i, P i its softmax, O i the "
        "product with its values; a and b are two warpgroups. Time runs to the right. "
        "The widths are those of the prediction for heads of 64, without any wait.",
    )


def _repeated(period: float, schedule: Callable[[int, float], list[Bar]]) -> list[Bar]:
    """Return the bars of all tiles that fit, each a period after the last."""
    tiles = range(int(_TIME / period) + 1)
    bars = [bar for i in tiles for bar in schedule(i, i * period)]
    return [bar for bar in bars if bar[1] + bar[2] <= _TIME]


def _in_order(i: int, at: float) -> list[Bar]:
    return [
        (_ROWS[0], at, 0.5, f"S{i}"),
        (_ROWS[1], at + 0.5, 1, f"P{i}"),
        (_ROWS[0], at + 1.5, 0.5, f"O{i}"),
    ]


def _overlapped(i: int, at: float) -> list[Bar]:
    bars = [(_ROWS[0], at, 0.5, f"S{i}"), (_ROWS[1], at + 0.5, 1.0, f"P{i}")]
    return [*bars, (_ROWS[0], at + 0.5, 0.5, f"O{i - 1}")] if i else bars


def _in_turns(i: int, at: float) -> list[Bar]:
    bars = []
    for late, name in enumerate("ab"):
        begin = at + late
        bars.append((_ROWS[0], begin, 0.5, f"S{name}{i}"))
        bars.append((_ROWS[1], begin + 0.5, 1.0, f"P{name}{i}"))
        if i:
            bars.append((_ROWS[0], begin + 0.5, 0.5, f"O{name}{i - 1}"))
    return bars


def _bars(bars: list[Bar]) -> str:
    parts = []
    for row, begin, length, label in bars:
        x, y = _LEFT + begin * _UNIT, _TOP + _ROWS.index(row) * _ROW
        colour = {"S": _S, "P": _P, "O": _V}[label[0]]
        style = f"--c: {palette.series(colour)}"
        parts.append(
            palette.box(x, y, length * _UNIT - 2, _HIGH, class_="kw-used", style=style)
        )
        middle = x + length * _UNIT / 2 - 1
        parts.append(palette.text(middle, y + 18, label))
    return "".join(parts)


def _base() -> str:
    parts = [palette.text(0, 22, "who works when", class_="kw-head")]
    for number, row in enumerate(_ROWS):
        y = _TOP + number * _ROW
        parts.append(palette.text(_LEFT - 10, y + 18, row, class_="kw-row"))
        parts.append(palette.box(_LEFT, y, _TIME * _UNIT - 2, _HIGH, class_="kw-none"))
    return "".join(parts)


def _words(name: str, period: float, bars: list[Bar]) -> str:
    """Say how busy both are once the schedule repeats itself."""
    begin, end = period, 3 * period
    busy = [
        f"{row} busy {sum(found) / (end - begin):.0%}"
        for row in _ROWS
        for found in [[_within(bar, begin, end) for bar in bars if bar[0] == row]]
    ]
    return f"{name}: {', '.join(busy)}"


def _within(bar: Bar, begin: float, end: float) -> float:
    """Return how much of a bar lies between two times."""
    return max(0.0, min(bar[1] + bar[2], end) - max(bar[1], begin))
