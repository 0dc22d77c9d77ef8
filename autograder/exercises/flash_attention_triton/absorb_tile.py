"""A tile of keys, taken into the running softmax."""

from __future__ import annotations

from autograder.exercise import Exercise
from autograder.exercises.flash_attention_triton.shared import (
    FULL_CASES,
    attention_case,
    forward_problem,
    full,
    made_in_triton,
    seen_by_all,
    tolerance,
    with_adapter,
)
from autograder.ideals import products

ABSORB_TILE = Exercise(
    id="absorb_tile",
    title="A tile of keys, absorbed",
    kind="warm-up",
    points=10,
    language="python",
    entry="function",
    name="absorb",
    source="solutions/flash_attention_triton/tiled.py",
    goal="Write `absorb`: take one tile of keys and values into the running softmax.",
    requirements=(
        "`most`, `total` and `acc` are brought to the new maximum, then added to.",
        "Keys that are not `seen` weigh nothing; every query sees one key of the first "
        "tile.",
        "The weights are rounded to 16 bits for the product with v.",
        "Right for logits however high or low: up to hundreds, or all near -20,000.",
    ),
    problem=forward_problem,
    reference=full,
    # 1 / sqrt(32) is no power of 2: multiplied into q, it rounds there.
    cases=(*FULL_CASES, attention_case(70, 32, regime="large")),
    tolerance=tolerance(seen_by_all),
    hints=(
        "Chapter 8's online softmax, for a tile: the new maximum, the weights relative "
        "to it, and one factor that brings all that was summed before to it.",
        "s = tl.dot(q, tl.trans(k)) * scale, then tl.where(seen, s, -inf). new = "
        "tl.maximum(most, tl.max(s, 1)); p = tl.exp(s - new[:, None]); shrink = "
        "tl.exp(most - new).",
        "total = total * shrink + tl.sum(p, 1); acc = acc * shrink[:, None] + "
        "tl.dot(p.to(v.dtype), v); most = new.",
    ),
    onward="Which of its lines would you drop if no logit could exceed 10?",
    # Two heads, two products of 128 x 128 x 64.
    counts=products(2 * 2 * 128 * 128 * 64),
    structure=(made_in_triton("tl.dot"),),
    prelude=with_adapter("adapt_absorb"),
)
