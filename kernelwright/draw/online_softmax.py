"""The online softmax, a number at a time: maximum, factor and total on a slider."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernelwright.draw import palette
from kernelwright.draw.steps import Frame, Steps

_MOST = 12  # numbers that can still be read in one picture
_CELL, _LEFT = 72.0, 112.0
_FLOOR, _HIGH = 196.0, 128.0  # where bars stand, and how high a weight of 1 is
_ROWS = {"x": 222.0, "maximum": 254.0, "factor": 286.0, "total": 318.0, "out": 350.0}
_HEIGHT = 366.0
_LINE = 20.0  # high enough for a label


@dataclass(frozen=True)
class _Step:
    """What is known after a number was taken in.

    Args:
        value: the number.
        before: the maximum without it.
        maximum: the maximum with it.
        factor: what all that was added before is multiplied by.
        total: the sum of weights relative to ``maximum``.
    """

    value: float
    before: float
    maximum: float
    factor: float
    total: float


def online_softmax(values: Iterable[float]) -> Steps:
    """Draw how one sweep over some numbers keeps their maximum and their total.

    Without a script the whole table is shown; a step shows the weights as they
    stand then, and dashed what they were before the maximum rose.

    Args:
        values: one row, at most 12 numbers; minus infinity is allowed.

    Returns:
        A figure whose steps are the numbers, and a last one that divides.

    Raises:
        ValueError: there is no number, there are too many, or one has no softmax.
    """
    row = [float(value) for value in values]
    if not 1 <= len(row) <= _MOST:
        raise ValueError(f"give 1 to {_MOST} numbers, not {len(row)}")
    if any(math.isnan(value) or value == math.inf for value in row):
        raise ValueError("a NaN, or an infinity above, makes the whole row NaN")
    steps = _swept(row)
    count = len(row)
    return Steps(
        [
            Frame(_picture(steps, count, now=None), _overview(steps)),
            *(
                Frame(_picture(steps, at + 1, now=at), _words(at, steps))
                for at in range(count)
            ),
            Frame(_divided(steps), _last(steps)),
        ],
        _labels(row),
        _LEFT + count * _CELL + 8,
        _HEIGHT,
        "Step",
        "A bar is a number's weight exp(x - maximum), relative to the largest number "
        "so far; the total is the sum of all bars. Where the maximum rises, every "
        "bar shrinks by the same factor, and so one multiplication mends the total.",
    )


def _swept(row: Sequence[float]) -> list[_Step]:
    maximum, total = -math.inf, 0.0
    steps = []
    for value in row:
        before, maximum = maximum, max(maximum, value)
        factor = _weight(before, maximum)
        total = total * factor + _weight(value, maximum)
        steps.append(_Step(value, before, maximum, factor, total))
    return steps


def _weight(value: float, maximum: float) -> float:
    """Return exp(value - maximum), 0 where both are minus infinity."""
    return math.exp(value - maximum) if value > -math.inf else 0.0


# --- in words ----------------------------------------------------------------------


def _overview(steps: Sequence[_Step]) -> str:
    last = steps[-1]
    rises = sum(s.maximum > s.before > -math.inf for s in steps)
    return (
        f"All {len(steps)} numbers: maximum {_show(last.maximum)}, total "
        f"{_show(last.total)}. The maximum rose {rises} "
        f"time{'s' * (rises != 1)} after it was first set."
    )


def _words(at: int, steps: Sequence[_Step]) -> str:
    step = steps[at]
    total = steps[at - 1].total if at else 0.0
    head = f"Step {at + 1}, x = {_show(step.value)}:"
    if step.maximum == -math.inf:
        return f"{head} still nothing above minus infinity; the total stays 0."
    term = f"exp({_show(step.value)} - {_show(step.maximum, inner=True)})"
    if step.before == -math.inf:
        return f"{head} the first maximum. total = 0 + {term} = {_show(step.total)}."
    if step.maximum == step.before:
        return (
            f"{head} the maximum stays {_show(step.maximum)}, the factor is 1. "
            f"total = {_show(total)} + {term} = {_show(step.total)}."
        )
    return (
        f"{head} the maximum rises from {_show(step.before)}; factor "
        f"exp({_show(step.before)} - {_show(step.maximum, inner=True)}) = "
        f"{_show(step.factor)}. "
        f"total = {_show(total)} * {_show(step.factor)} + 1 = {_show(step.total)}."
    )


def _last(steps: Sequence[_Step]) -> str:
    total = steps[-1].total
    if not total:
        return "Nothing to divide by: the total is 0, and 0 / 0 is NaN, as in torch."
    return (
        f"The second sweep: each weight divided by the total {_show(total)}. "
        "What comes out adds up to 1."
    )


def _show(number: float, *, inner: bool = False) -> str:
    """Return a number in few digits; ``inner`` puts a negative one in brackets."""
    if number == -math.inf:
        return "-inf"
    said = f"{number:.3g}"
    return f"({said})" if inner and number < 0 else said


# --- in a picture ------------------------------------------------------------------


def _labels(row: Sequence[float]) -> str:
    parts = [palette.text(8, 24, "weight, of the largest so far", class_="kw-head")]
    for name, y in _ROWS.items():
        parts.append(palette.text(_LEFT - 12, y, name, class_="kw-row"))
    for at, value in enumerate(row):
        parts.append(palette.text(_middle(at), _ROWS["x"], _show(value)))
    right = _LEFT + len(row) * _CELL
    parts.append(
        f'<line x1="{_LEFT:g}" y1="{_FLOOR:g}" x2="{right:g}" y2="{_FLOOR:g}" '
        f'stroke="{palette.LINE}"/>'
    )
    return "".join(parts)


def _picture(steps: Sequence[_Step], read: int, now: int | None) -> str:
    """Draw the weights after ``read`` numbers, and the table as far as it is."""
    known = steps[read - 1]
    parts = []
    for at, step in enumerate(steps[:read]):
        weight = old = _weight(step.value, known.maximum)
        if now is not None and at < now and known.factor < 1:
            old = _weight(step.value, known.before)
            parts.append(_bar(at, old, class_="kw-masked"))
        colour = palette.series(1 if at == now else 0)
        parts.append(_bar(at, weight, class_="kw-used", style=f"--c: {colour}"))
        parts.append(_over(at, weight, old))
        parts.append(_column(at, step, bold=at == now))
        if now is None:
            parts.append(_share(at, weight, known.total))
    return "".join(parts)


def _column(at: int, step: _Step, *, bold: bool) -> str:
    first = step.before == -math.inf
    shown = {
        "maximum": _show(step.maximum),
        "factor": "" if first else _show(step.factor),
        "total": _show(step.total),
    }
    parts = []
    for name, said in shown.items():
        heavy = bold or (name == "factor" and step.factor < 1)
        style = "font-weight: 700" if heavy else ""
        parts.append(palette.text(_middle(at), _ROWS[name], said, style=style))
    if bold:
        top, bottom = _ROWS["x"] - 19, _ROWS["total"] + 10
        parts.append(
            palette.box(_LEFT + at * _CELL + 3, top, _CELL - 6, bottom - top,
                        fill="none", stroke=palette.series(1))
        )  # fmt: skip
    return "".join(parts)


def _divided(steps: Sequence[_Step]) -> str:
    last = steps[-1]
    parts = []
    for at, step in enumerate(steps):
        weight = _weight(step.value, last.maximum)
        share = weight / last.total if last.total else 0.0
        parts.append(_bar(at, weight, class_="kw-masked"))
        colour = palette.series(2)
        parts.append(_bar(at, share, class_="kw-used", style=f"--c: {colour}"))
        parts.append(_column(at, step, bold=False))
        parts.append(_share(at, weight, last.total))
    return "".join(parts)


def _share(at: int, weight: float, total: float) -> str:
    said = _show(weight / total) if total else "NaN"
    return palette.text(_middle(at), _ROWS["out"], said, style="font-weight: 700")


def _bar(at: int, weight: float, **attributes: object) -> str:
    height = max(weight * _HIGH, 1.0)
    x = _LEFT + at * _CELL + 12
    return palette.box(x, _FLOOR - height, _CELL - 24, height, **attributes)


def _over(at: int, weight: float, old: float) -> str:
    high = max(weight * _HIGH, 1.0)
    if (old - weight) * _HIGH < _LINE:  # or the dashes would go through it
        high = max(high, old * _HIGH)
    return palette.text(_middle(at), _FLOOR - high - 6, _show(weight))


def _middle(at: int) -> float:
    return _LEFT + (at + 0.5) * _CELL
