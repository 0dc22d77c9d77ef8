"""Philox-4x32-10 in int64, element by element, and the mask that follows from it.

Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from autograder.drawing import drawn, rounded
from autograder.exercise import Arguments, Case

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFF_FFFF


def philox(
    counter: Sequence[torch.Tensor], key: tuple[int, int], rounds: int = 10
) -> list[torch.Tensor]:
    """Return the four words of each counter, as int64."""
    a, b, c, d = counter
    first, second = key
    for _ in range(rounds):
        high0, low0 = _product(_MULTIPLIERS[0], a)
        high1, low1 = _product(_MULTIPLIERS[1], c)
        a, b, c, d = high1 ^ b ^ first, low1, high0 ^ d ^ second, low0
        first = (first + _KEY_STEPS[0]) & _LOW
        second = (second + _KEY_STEPS[1]) & _LOW
    return [a, b, c, d]


def _product(a: int, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the high and the low 32 bits of a product; none of int64 overflows."""
    upper, lower = a * (b >> 16), a * (b & 0xFFFF)
    middle = upper + (lower >> 16)  # the product without its lowest 16 bits
    return middle >> 16, (middle << 16 | lower & 0xFFFF) & _LOW


def _words(n: int, seed: int) -> torch.Tensor:
    """Return element i's bits: word i % 4 at the counter (i / 4, 0, 0, 0)."""
    counter = torch.arange(-(-n // 4))
    zero = torch.zeros_like(counter)
    words = philox((counter, zero, zero, zero), (seed, 0))
    return torch.stack(words, 1).reshape(-1)[:n]


def uniform(n: int, seed: int) -> torch.Tensor:
    """Return element i's number, from 0 to below 1."""
    return (_words(n, seed) >> 8).double() * 2.0**-24


def draw_seed_and_p(case: Case, generator: torch.Generator) -> tuple[int, float]:
    """Draw a seed of 32 bits, of which the sums wrap around, and say what p is."""
    seed, p = drawn(generator, 2**31, 2**32), case.sizes["percent"] / 100
    if case.regime in ("met", "missed"):  # one of the numbers, about as large
        steps = _words(case.sizes["n"], seed)
        if case.regime == "missed":
            # Rounded to 24 bits, and not cut off, these words reach the next number.
            steps = steps[(steps & 0xFF) > 0xF0] + 0x100
        steps = (steps >> 8)[(steps >> 8) % 2 == 1]  # no 23 bits have these
        p = float(steps.double().quantile(p, interpolation="nearest")) * 2.0**-24
    return seed, p


def kept(arguments: Arguments, n: int) -> tuple[torch.Tensor, float]:
    """Return which elements are kept, and what they are multiplied by."""
    seed, p = arguments["seed"], rounded(arguments, "p")
    assert isinstance(seed, int)
    return uniform(n, seed) >= p, 1.0 / (1.0 - p) if p < 1.0 else 0.0
