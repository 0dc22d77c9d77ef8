"""The median's interval covers what it says it covers."""

from __future__ import annotations

import math
import random
from itertools import product

import pytest

from kernelwright.measure import median_interval
from kernelwright.measure.interval import coverage, interval_depth


def test_coverage_is_exact_by_counting_every_outcome():
    # Each of n samples falls below the true median or above it, like a coin.
    n, depth = 9, 2
    inside = sum(
        depth <= sum(coins) <= n - depth for coins in product((0, 1), repeat=n)
    )
    assert coverage(n, depth) == pytest.approx(inside / 2**n, abs=1e-12)


@pytest.mark.parametrize(("n", "depth"), [(5, 1), (6, 1), (9, 2), (20, 6), (100, 40)])
def test_depth_is_the_narrowest_that_still_covers_95_percent(n, depth):
    # 6 is the fewest with 1 - 2 / 2^n >= 0.95; 20 and 100 stand in every table.
    assert interval_depth(n, 0.95) == depth
    if n >= 6:
        assert coverage(n, depth) >= 0.95 > coverage(n, depth + 1)


def test_few_samples_say_that_they_do_not_reach_the_level():
    found = median_interval([3.0, 1.0, 2.0])
    assert (found.median, found.low, found.high) == (2.0, 1.0, 3.0)
    assert found.level == pytest.approx(0.75)


def test_large_numbers_use_the_normal_form_and_agree_with_the_exact_one():
    assert abs(interval_depth(2001, 0.95) - interval_depth(2000, 0.95)) <= 1
    assert abs(interval_depth(2001, 0.99) - interval_depth(2000, 0.99)) <= 1


def test_interval_covers_the_true_median_of_a_skewed_distribution():
    draw = random.Random(1)
    true = math.log(2)  # the exponential distribution's median
    hits = 0
    for _ in range(2000):
        found = median_interval([draw.expovariate(1) for _ in range(25)])
        hits += found.low <= true <= found.high
    # 25 samples at depth 8 cover 95.7%; three standard errors are 1.4%.
    assert 0.943 <= hits / 2000 <= 0.971


def test_half_width_is_relative_to_the_median():
    found = median_interval([9.0, 9.5, 10.0, 10.0, 10.5, 12.0])
    assert found.half_width == pytest.approx(0.2)
    assert median_interval([0.0]).half_width == math.inf


@pytest.mark.parametrize("samples", [[], [1.0, math.nan]])
def test_no_interval_without_numbers(samples):
    with pytest.raises(ValueError, match="sample"):
        median_interval(samples)
