"""What a subtraction leaves of two sums of squares: bits, side by side.

The one-pass variance E[x^2] - E[x]^2, computed in fp32 on rows whose mean is further
and further from zero, beside what float64 makes of the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernelwright.draw import palette
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError

_BITS = 24  # of a float's significand
_COLUMNS = 40
_CELL, _SIDE, _LEFT, _TOP, _STEP = 16, 15, 150, 58, 46
_ROWS = ("mean of squares", "mean, squared", "fp32 difference", "the variance")


@dataclass(frozen=True)
class Cancelled:
    """One row of numbers, and its variance computed in one pass of fp32.

    Args:
        ratio: of mean to deviation.
        squares: the mean of the squares, fp32.
        square: the square of the mean, fp32.
        computed: their difference, fp32.
        exact: the variance in float64.
    """

    ratio: float
    squares: float
    square: float
    computed: float
    exact: float

    @property
    def off(self) -> float:
        """By how much of itself the variance is wrong."""
        return abs(self.computed - self.exact) / self.exact

    @property
    def lost(self) -> int:
        """How many leading bits the two have in common, and the difference lacks."""
        return max(0, exponent(self.squares) - exponent(self.exact))


def cancelled(ratio: float, count: int = 1024) -> Cancelled:
    """Compute the one-pass variance of ``count`` numbers with deviation 1."""
    generator = torch.Generator().manual_seed(count)
    x = ratio + torch.randn(count, generator=generator)
    mean = x.sum() / count
    squares = (x * x).sum() / count
    exact = x.double().var(correction=0)
    square = mean * mean
    return Cancelled(
        ratio, float(squares), float(square), float(squares - square), float(exact)
    )


def cancelled_bits(
    ratios: Sequence[float] = (1, 10, 100, 1_000, 10_000, 100_000),
) -> Steps:
    """Draw which bits of a one-pass variance are left, for each mean / deviation.

    Args:
        ratios: of mean to deviation, each at least 0.

    Returns:
        A figure with a frame for each.

    Raises:
        ArgumentError: no ratio, or a negative one.
    """
    if not ratios or min(ratios) < 0:
        raise ArgumentError(
            f"cancelled_bits: ratios are {tuple(ratios)}; wanted one or more, none "
            "below 0."
        )
    frames = [_frame(cancelled(float(ratio))) for ratio in ratios]
    return Steps(
        frames,
        _base(),
        _LEFT + _COLUMNS * _CELL + 8,
        _TOP + len(_ROWS) * _STEP,
        "Mean / deviation",
        "E[x²] and E[x]² of 1,024 numbers with deviation 1, in fp32, bit by bit. Their "
        "leading bits are the same and cancel; what is left of the variance are the "
        "bits that stand within a float's 24.",
    )


def exponent(value: float) -> int:
    """Return the power of two of a number's first bit."""
    return math.frexp(value)[1] - 1


def significand(value: float, bits: int = _BITS) -> list[int]:
    """Return a number's first bits, from the highest that is 1."""
    whole = round(math.ldexp(math.frexp(abs(value))[0], bits))
    return [whole >> place & 1 for place in range(bits - 1, -1, -1)]


def _frame(row: Cancelled) -> Frame:
    top = exponent(max(row.squares, row.square))
    drawn = []
    for number, value in enumerate((row.squares, row.square)):
        shared = top - exponent(row.exact)
        drawn.append(
            _bits(number, value, top, lambda at, shared=shared: _alike(at, shared))
        )
    error = abs(row.computed - row.exact)
    if row.computed:
        drawn.append(
            _bits(
                2,
                row.computed,
                top,
                lambda at: _BLUE if 2.0 ** (top - at) > error else _RED,
                "−" if row.computed < 0 else "",
            )
        )
    else:
        drawn.append(palette.text(_x(0) + 20, _y(2) + 12, "0", class_="kw-bit"))
    drawn.append(_bits(3, row.exact, top, lambda at: _BLUE if at < _BITS else _WASTE))
    inside = max(0, _BITS - row.lost)
    words = (
        f"{row.ratio:,.0f}: {row.lost} leading bits cancel, {inside} of the variance "
        f"{'is' if inside == 1 else 'are'} within reach; fp32 says {row.computed:.4g}, "
        f"wanted {row.exact:.4g}"
    )
    return Frame("".join(drawn), words)


_BLUE = {"class_": "kw-used", "style": f"--c: {palette.series(0)}"}
_RED = {"class_": "kw-wrong"}
_WASTE = {"class_": "kw-waste"}


def _alike(at: int, shared: int) -> dict[str, str]:
    """Mark the bits that both sums have in common, and the rest."""
    return {"class_": "kw-shared"} if at < shared else _BLUE


def _x(column: int) -> float:
    return _LEFT + column * _CELL


def _y(row: int) -> float:
    return _TOP + row * _STEP


def _bits(number: int, value: float, top: int, kind: object, sign: str = "") -> str:
    """Draw a number's bits, each in the column of its power of two."""
    assert callable(kind)
    first = top - exponent(value)
    parts = []
    if sign:
        parts.append(palette.text(_x(first) - 8, _y(number) + 12, sign))
    for offset, bit in enumerate(significand(value)):
        at = first + offset
        if not 0 <= at < _COLUMNS:
            continue
        parts.append(palette.box(_x(at), _y(number), _SIDE, _SIDE + 3, **kind(at)))
        parts.append(palette.text(_x(at) + _SIDE / 2, _y(number) + 14, str(bit)))
    return "".join(parts)


def _base() -> str:
    """Draw the names of the rows, and where a float ends."""
    edge = _x(_BITS) - 0.5
    bottom = _y(len(_ROWS)) - 20
    parts = [
        palette.text(_LEFT, 18, "one column a power of two", class_="kw-head"),
        f'<path d="M{edge:g} 30V{bottom:g}" fill="none" stroke="{palette.MUTED}" '
        'stroke-dasharray="4 3"/>',
        palette.text(edge + 6, 42, "a float ends here", class_="kw-tick",
                     style="text-anchor: start"),
    ]  # fmt: skip
    for number, name in enumerate(_ROWS):
        parts.append(palette.text(_LEFT - 10, _y(number) + 14, name, class_="kw-row"))
    return "".join(parts)
