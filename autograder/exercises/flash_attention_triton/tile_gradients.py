"""The gradients of one tile, whose weights are made again."""

from __future__ import annotations

from autograder.exercise import Exercise
from autograder.exercises.flash_attention_triton.gradients import (
    OF_GRADIENTS,
    backward_problem,
    gradients,
)
from autograder.exercises.flash_attention_triton.shared import (
    attention_case,
    made_in_triton,
    with_adapter,
)
from autograder.ideals import products

TILE_GRADIENTS = Exercise(
    id="tile_gradients",
    title="The gradients of a tile, recomputed",
    kind="core",
    points=10,
    language="python",
    entry="function",
    name="tile_gradients",
    source="solutions/flash_attention_triton/training.py",
    goal="For one tile of queries against one of keys, make P again from lse, and with "
    "it `dq`, and what is added to `dk` and `dv`.",
    requirements=(
        "P comes from q, k and `lse`: no maximum, no sum.",
        "`dot` holds D_i of each query, dO_i . O_i.",
        "All operands of products are 16 bits, all sums fp32.",
    ),
    problem=backward_problem,
    reference=gradients,
    # Narrow heads: a gradient that lacks its scale is 4 times too large, and its
    # roundings are still below what the right one may err by.
    cases=(
        attention_case(128, 16),
        attention_case(100, 16, heads=2),
        attention_case(130, 32, heads=3, regime="growing"),
        attention_case(1, 16),
        # Logits of hundreds: rounded to 16 bits, they and lse are off by a tenth.
        attention_case(70, 16, regime="large"),
    ),
    tolerance=OF_GRADIENTS,
    hints=(
        "Five products: s, dv, dp, dk, dq. s and dp are (ROWS, COLS); the two that go "
        "to keys need the transpose of what was computed by queries.",
        "p = exp(s - lse), with s = -inf where not seen. dv += p^T grad; dp = grad "
        "v^T; ds = p * (dp - dot) * scale.",
        "dv += tl.dot(tl.trans(p.to(grad.dtype)), grad); dp = tl.dot(grad, "
        "tl.trans(v)); ds = (p * (dp - dot[:, None]) * scale).to(q.dtype); dk += "
        "tl.dot(tl.trans(ds), q); dq = tl.dot(ds, k).",
    ),
    onward="Which of the five products would be left if P had been stored?",
    # Five products of each pair of tiles below the diagonal: three of the four.
    counts=products(5 * 3 * 64 * 64 * 16),
    structure=(made_in_triton("tl.dot"),),
    prelude=with_adapter("adapt_gradients"),
)
