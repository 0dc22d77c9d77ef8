"""Numbers as circuits hold them, and how far that may be from the real ones.

A code c with f fraction bits stands for c / 2^f. Scores are in base 2: who makes the
query multiplies it by log2(e) / sqrt(d) before it is rounded, so that a weight is
2^(score - reference), and the division by the weights' sum cancels the reference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelwright.errors import ArgumentError

Codes = NDArray[np.int64]
Reals = NDArray[np.float64]

SCORE_FRACTION = 8
WEIGHT_FRACTION = 16
SHIFT_BITS = 5  # a shift by 31 leaves nothing of any weight


@dataclass(frozen=True)
class Format:
    """A signed fixed-point format.

    Args:
        width: bits, the sign among them.
        fraction: how many of them stand behind the point.

    Raises:
        ArgumentError: the width is not 2 to 32 bits.
    """

    width: int
    fraction: int

    def __post_init__(self) -> None:
        if not 2 <= self.width <= 32:
            raise ArgumentError(f"width is {self.width}; wanted 2 to 32 bits.")

    @property
    def step(self) -> float:
        """What the last bit stands for."""
        return 2.0**-self.fraction

    @property
    def largest(self) -> float:
        """The largest number that it holds."""
        return (2 ** (self.width - 1) - 1) * self.step

    def codes(self, numbers: Reals) -> Codes:
        """Round to the nearest code; what is too large saturates.

        The error of what fits is at most half a step.
        """
        top = 2 ** (self.width - 1)
        scaled = np.rint(np.asarray(numbers, np.float64) / self.step)
        return np.clip(scaled, -top, top - 1).astype(np.int64)

    def numbers(self, codes: Codes) -> Reals:
        """Return what codes stand for."""
        return np.asarray(codes, np.float64) * self.step


def power_table(fraction: int = SCORE_FRACTION) -> list[int]:
    """Return 2^(-i / 2^fraction), i = 0 .. 2^fraction - 1, with 16 fraction bits."""
    steps = 2**fraction
    return [round(2 ** (WEIGHT_FRACTION - i / steps)) for i in range(steps)]


def score_width(head_dim: int, width: int) -> int:
    """Return the bits that the sum of ``head_dim`` products needs."""
    return 2 * width + math.ceil(math.log2(head_dim))


def weight_bound(gaps: Codes, fraction: int = SCORE_FRACTION) -> Reals:
    """Bound the error of a weight, in steps of 2^-16.

    The table rounds: half a step, halved by each place of the shift. The shift cuts
    off: less than one step, and nothing where it is 0.

    Args:
        gaps: reference minus score, codes of at least 0.
        fraction: fraction bits of a score.
    """
    places = np.minimum(np.asarray(gaps) >> fraction, 2**SHIFT_BITS - 1)
    return np.asarray(0.5 * 2.0**-places + (places > 0), np.float64)


def sums_bound(gaps: Codes, magnitudes: Reals) -> Reals:
    """Bound the error of an accumulator of one query, in steps of its last bit.

    Each key adds its weight's error times the value, and that only shrinks when the
    reference rises. A rescale cuts off less than one step of what is there; as it
    halves at least what earlier ones left, all of them together leave less than two.

    Args:
        gaps: (keys,), each key's score below the largest reference of the query.
        magnitudes: (keys, ...), by what each weight is multiplied, at least 0.

    Returns:
        (...), bounds.
    """
    # A key was weighed by an earlier reference and shifted since: what the later
    # shift makes of its error is no more than the error then, at most 1.25 steps.
    error = np.maximum(weight_bound(gaps), 1.25)
    return np.asarray(np.tensordot(error, magnitudes, 1) + 2.0)


def attention_bound(
    gaps: Codes, values: Codes, out: Reals, total: float, guard: int
) -> Reals:
    """Bound the error of attention's output, in steps of a value's code.

    With sums A + a and T + t in place of A and T, (A + a) / (T + t) - A / T is
    (a - o t) / (T + t), where o = A / T; and a - o t adds up each weight's error times
    v - o. The division cuts off one last place.

    Args:
        gaps: (keys,), each key's score below the largest reference.
        values: (keys, head_dim), codes.
        out: (head_dim,), the exact output in steps of a value's code.
        total: the exact sum of weights, in steps of 2^-16.
        guard: places behind the value's point that the division adds.
    """
    spread = np.abs(values - out[None])
    off = sums_bound(gaps, spread) + 2.0 * np.abs(out)
    least = max(total - float(sums_bound(gaps, np.ones(len(gaps)))), 1.0)
    return np.asarray(off / least + 2.0**-guard)
