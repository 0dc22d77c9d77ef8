"""The median of a few samples and how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A median with its confidence interval.

    Args:
        median: the samples' median.
        low: lower end of the interval.
        high: upper end of the interval.
        level: the confidence that the interval really has, 0 to 1.
    """

    median: float
    low: float
    high: float
    level: float

    @property
    def half_width(self) -> float:
        """The larger of the two arms, relative to the median."""
        if self.median == 0:
            return math.inf
        arm = max(self.high - self.median, self.median - self.low)
        return arm / abs(self.median)


def coverage(n: int, depth: int) -> float:
    """Return the chance that the median lies between two order statistics.

    ``P = 1 - 2 * sum_{k < depth} C(n, k) / 2^n`` for the ``depth``-th smallest and
    the ``depth``-th largest of ``n`` samples, whatever their distribution.
    """
    tail = 0.0
    for k in range(depth):
        log_term = (
            math.lgamma(n + 1)
            - math.lgamma(k + 1)
            - math.lgamma(n - k + 1)
            - n * math.log(2)
        )
        tail += math.exp(log_term)
    return max(0.0, 1.0 - 2.0 * tail)


def interval_depth(n: int, level: float) -> int:
    """Return how far in from both ends an interval of this level may begin.

    1 stands for the smallest and the largest sample, also where they do not reach
    the level: five samples cannot give 95%.
    """
    if n > 2000:
        # The binomial is normal here to better than one rank in a thousand.
        z = 1.959964 if level == 0.95 else _normal_quantile(0.5 + level / 2)
        return max(1, math.floor((n - z * math.sqrt(n)) / 2))
    depth = 1
    while depth + 1 <= (n + 1) // 2 and coverage(n, depth + 1) >= level:
        depth += 1
    return depth


def median_interval(samples: Sequence[float], level: float = 0.95) -> Interval:
    """Estimate the median and its interval from order statistics.

    No distribution is assumed: timings have a long right tail, and a mean with a
    standard deviation describes them badly.

    Args:
        samples: at least one number.
        level: the confidence asked for; ``Interval.level`` says what was reached.

    Returns:
        The interval between two of the samples.

    Raises:
        ValueError: no sample was given, or one is not a number.
    """
    if not samples:
        raise ValueError("no samples: an interval needs at least one")
    ordered = sorted(samples)
    if any(math.isnan(sample) for sample in ordered):
        raise ValueError("a sample is NaN")
    n = len(ordered)
    middle = n // 2
    median = ordered[middle]
    if n % 2 == 0:
        median = (ordered[middle - 1] + ordered[middle]) / 2
    depth = interval_depth(n, level)
    return Interval(median, ordered[depth - 1], ordered[n - depth], coverage(n, depth))


def _normal_quantile(p: float) -> float:
    """Return the standard normal quantile by bisection of the error function."""
    low, high = -10.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        if 0.5 * (1 + math.erf(middle / math.sqrt(2))) < p:
            low = middle
        else:
            high = middle
    return low
