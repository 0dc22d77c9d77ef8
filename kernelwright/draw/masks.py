"""Which key a query sees under a causal mask, with more keys than queries."""

from __future__ import annotations

from kernelwright.draw import palette
from kernelwright.draw.steps import Frame, Steps

_QUERIES, _MOST, _CELL, _TOP, _LEFT, _GAP = 4, 8, 24, 64, 30, 56


def corner_masks() -> Steps:
    """Draw a causal mask aligned to the bottom right, and one to the top left.

    The slider adds keys that are older than the first of four queries. At the bottom
    right the last query sees the last key whatever their number; at the top left, as
    torch's ``is_causal`` counts, the first query sees the first key alone.
    """
    frames = []
    for older in range(_MOST - _QUERIES + 1):
        keys = _QUERIES + older
        drawn = _grid(0, keys, older) + _grid(1, keys, 0)
        frames.append(Frame(drawn, _words(older, keys)))
    return Steps(
        frames,
        palette.text(_left(0), 22, "bottom right", class_="kw-head")
        + palette.text(_left(1), 22, "top left", class_="kw-head"),
        _left(1) + _MOST * _CELL + 6,
        _TOP + _QUERIES * _CELL + 8,
        "Older keys",
        "Four queries downwards, keys to the right; filled: seen. The two masks agree "
        "only where there are as many keys as queries.",
        wide=False,
        narrow=True,
    )


def _left(side: int) -> float:
    return _LEFT + side * (_MOST * _CELL + _GAP)


def _grid(side: int, keys: int, offset: int) -> str:
    """Draw a mask in which query i sees the keys up to i + offset."""
    parts = [
        palette.text(_left(side) + (j + 0.5) * _CELL - 1, _TOP - 8, f"{j}",
                     class_="kw-tick")
        for j in range(keys)
    ]  # fmt: skip
    for i in range(_QUERIES):
        y = _TOP + i * _CELL
        parts.append(palette.text(_left(side) - 6, y + 16, f"{i}", class_="kw-row"))
        for j in range(keys):
            seen = j <= i + offset
            parts.append(
                palette.box(
                    _left(side) + j * _CELL, y, _CELL - 2, _CELL - 2,
                    class_="kw-used" if seen else "kw-none",
                    style=f"--c: {palette.series(side)}",
                )
            )  # fmt: skip
    return "".join(parts)


def _words(older: int, keys: int) -> str:
    if not older:
        return "4 queries, 4 keys: the masks are the same"
    return (
        f"4 queries, {keys} keys: query 0 is token {older}. At the bottom right it "
        f"sees {older + 1} keys, at the top left one"
    )
