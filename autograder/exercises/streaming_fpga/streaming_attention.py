"""The ladder's top: a query that stays, keys and values that pass by."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Output,
    Outputs,
    Problem,
)
from autograder.exercises.streaming_fpga.shared import (
    ONE,
    PRELUDE,
    bounded,
    ceilings,
    codes,
    pauses,
    stream_case,
    weight_bound,
)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    queries, keys, d = (case.sizes[name] for name in ("queries", "keys", "d"))
    query = codes(generator, queries, d) // 4
    pair = codes(generator, queries, keys, 2 * d)
    # The largest products that there are; their score is a whole number.
    query[0] = pair[0, 0, :d] = -128
    last = (torch.arange(keys) == keys - 1).long().expand(queries, keys)
    pair = torch.cat([pair, last[..., None]], 2).reshape(queries * keys, 2 * d + 1)
    cycles = queries * keys
    return Problem(
        {
            "query": query,
            "pair": pair,
            **pauses(case, generator, "query", "pair", cycles=6 * cycles),
            "head_dim": d,
            "width": 8,
            "sum_width": 32,
        },
        {"out": Output((queries, 1 + d), torch.float64)},
        cycles=12 * cycles + 100,
    )


def _scores(arguments: Arguments) -> torch.Tensor:
    """Return each query's scores, (queries, keys)."""
    query = tensor(arguments, "query")
    queries, d = query.shape
    keys = tensor(arguments, "pair").reshape(queries, -1, 2 * d + 1)[..., :d]
    return (keys * query[:, None]).sum(-1)


def _weighed(arguments: Arguments) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gaps below each query's reference, and values beside a 1."""
    queries, d = tensor(arguments, "query").shape
    pair = tensor(arguments, "pair").reshape(queries, -1, 2 * d + 1)
    scores = _scores(arguments)
    highest = ceilings(scores).max(1, keepdim=True).values
    ones = torch.ones_like(pair[..., :1])
    return 256 * highest - scores, torch.cat([ones, pair[..., d:-1]], 2)


def _reference(arguments: Arguments) -> Outputs:
    gaps, values = _weighed(arguments)
    weights = ONE * 2.0 ** (-gaps.double() / 256)
    return {"out": (weights[..., None] * values).sum(1)}


def _bound(arguments: Arguments) -> Outputs:
    # A weight's error, at most 1.25 steps when it was made, shrinks with every shift.
    # Each shift cuts off less than a step, and halves at least what earlier ones cut
    # off: less than two in all. Where nothing shifts, neither is to be added.
    gaps, values = _weighed(arguments)
    # The first score's reference is the last one's where it never rises.
    scores = _scores(arguments)
    still = (ceilings(scores).amax(1) == ceilings(scores[:, 0]))[:, None, None]
    error = weight_bound(gaps)[..., None]
    error = torch.where(still, error, error.clamp(min=1.25))
    cut = torch.where(still[:, 0], 0.0, 2.0)
    return {"out": (error * values.abs()).sum(1) + cut}


STREAMING_ATTENTION = Exercise(
    id="streaming_attention",
    title="Attention while keys pass by",
    kind="ladder",
    points=30,
    language="python",
    entry="circuit",
    name="StreamingAttention",
    source="solutions/streaming_fpga/streaming_attention.py",
    needs=("max_rescale_unit",),
    goal="Hold one query, let keys and values pass by, one pair a cycle, and give the "
    "sums of weights and of weighed values at the end.",
    requirements=(
        "`query` is a stream of rows of `head_dim` codes of `width` bits; a query is "
        "taken when none is held, or in the cycle in which the held one's last pair "
        "is.",
        "`pair` is a stream of (key, value, last). A score is the sum of query times "
        "key; its weight and shift come from your `MaxRescaleUnit`.",
        "At each query's end `out` gives (total, sums): the sum of weights, and for "
        "each of `head_dim` places that of weights times values. With a shift, older "
        "sums shift first. The division is not asked for.",
        "One pair a cycle, between queries too; at most 10 cycles from a query's last "
        "pair to its item; `2 * head_dim` multipliers.",
        "`head_dim` is a multiple of 4. Nothing is lost or doubled where the outside "
        "waits.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        stream_case(queries=4, keys=24, d=8),
        stream_case("pauses", queries=4, keys=9, d=4),
        stream_case("blocked", queries=5, keys=3, d=4),
        stream_case("starved", queries=2, keys=11, d=4),
        stream_case("pauses", queries=6, keys=1, d=4),
        stream_case("pauses", queries=2, keys=20, d=20),
    ),
    tolerance=bounded(_bound),
    hints=(
        "Three parts: products and sums before the unit, the unit, weighed values and "
        "sums behind it. A value must arrive at the multiplier together with its "
        "weight.",
        "What is before the unit moves when the unit takes a score: "
        "`unit.score.ready`. The unit moves in just these cycles too, so a value that "
        "is delayed by your own stages and by `unit.latency` more arrives with its "
        "weight. What is behind it moves when `~out.valid | out.ready`.",
        "With three stages before: value[0] takes `pair.value`, each next one the one "
        "before it, 3 + unit.latency in all, under `m.If(unit.score.ready)`. Behind: a "
        "register for weight * value, then "
        "`Mux(ended, 0, sums[i] >> shift) + part[i]`, and `out.valid` with the last.",
    ),
    onward="Two queries that listen to the same keys: what is added, and what is not?",
    counts=(
        Count("cycles", ideal=107, times=109 / 107),
        Count("multipliers", ideal=16, times=1),
        Count("register bits", ideal=1400, times=1.5, at_least=600),
    ),
    repeats=("query", "pair", "query.valid", "pair.valid", "out.ready"),
    prelude=PRELUDE,
)
