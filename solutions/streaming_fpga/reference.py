"""What the circuits compute, bit for bit, in whole numbers of numpy."""

from __future__ import annotations

import numpy as np

from solutions.streaming_fpga.fixed_point import (
    SCORE_FRACTION,
    SHIFT_BITS,
    WEIGHT_FRACTION,
    Codes,
    Reals,
    power_table,
)

_MOST = 2**SHIFT_BITS - 1
_TABLE = np.array(power_table())


def online_weights(scores: Codes) -> tuple[Codes, Codes]:
    """Return each key's weight when it passes, and how far older sums shift then.

    Args:
        scores: (keys,), codes with ``SCORE_FRACTION`` fraction bits.

    Returns:
        (keys,) weights with 16 fraction bits, and (keys,) shifts, 0 for the first.
    """
    ceilings = -(-scores >> SCORE_FRACTION)
    highest = np.maximum.accumulate(ceilings)
    shifts = np.minimum(np.diff(highest, prepend=highest[:1]), _MOST)
    gaps = (highest << SCORE_FRACTION) - scores
    places = np.minimum(gaps >> SCORE_FRACTION, _MOST)
    return _TABLE[gaps & (2**SCORE_FRACTION - 1)] >> places, shifts


def sums_of(query: Codes, keys: Codes, values: Codes) -> tuple[int, Codes]:
    """Return the total of the weights and the sums of weighed values.

    Args:
        query: (head_dim,), codes.
        keys: (keys, head_dim), codes.
        values: (keys, head_dim), codes.
    """
    weights, shifts = online_weights(keys @ query)
    total, sums = 0, np.zeros(values.shape[1], np.int64)
    for weight, shift, value in zip(weights, shifts, values, strict=True):
        total = (total >> int(shift)) + int(weight)
        sums = (sums >> shift) + weight * value
    return total, sums


def attend(query: Codes, keys: Codes, values: Codes, guard: int) -> Codes:
    """Return attention's output, (head_dim,), with ``guard`` further fraction bits."""
    total, sums = sums_of(query, keys, values)
    return np.asarray(np.sign(sums) * ((np.abs(sums) << guard) // total))


def exact_sums(scores: Codes, values: Codes) -> tuple[float, Reals, Codes]:
    """Return total and sums in float64, and the gaps below the largest reference.

    All in the accumulators' units: steps of 2^-16, times a value's code.
    """
    highest = int((-(-scores >> SCORE_FRACTION)).max())
    gaps = (highest << SCORE_FRACTION) - scores
    weights = 2.0 ** (WEIGHT_FRACTION - gaps / 2**SCORE_FRACTION)
    return float(weights.sum()), np.asarray(weights @ values, np.float64), gaps
