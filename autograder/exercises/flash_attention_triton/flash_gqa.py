"""Grouped heads: several query heads share the keys of one."""

from __future__ import annotations

from autograder.exercise import Exercise, Structure
from autograder.exercises.flash_attention_triton.shared import (
    BY_ABSORB,
    PRELUDE,
    attention_case,
    causal,
    forward_problem,
    seen_causally,
    tolerance,
)
from autograder.ideals import moves, products

FLASH_GQA = Exercise(
    id="flash_gqa",
    title="Grouped heads, and queries after a cache",
    kind="core",
    points=15,
    language="python",
    entry="function",
    name="flash_gqa",
    source="solutions/flash_attention_triton/grouped.py",
    goal="Let `heads // kv_heads` query heads share one KV head, where the `n` queries "
    "are the last of `keys` tokens.",
    requirements=(
        "Query head `h` reads KV head `h // (heads // kv_heads)` of its own batch.",
        "Query `i` is token `keys - n + i`: it sees the keys up to that one.",
        "Tiles that no query of the program sees are not loaded.",
    ),
    problem=forward_problem,
    reference=causal,
    cases=(
        attention_case(128, heads=2, kv_heads=1, keys=256),
        attention_case(50, heads=4, batch=2, kv_heads=2, keys=70),
        attention_case(100, 32, heads=3, kv_heads=3, keys=100, regime="growing"),
        attention_case(1, 16, heads=6, kv_heads=2, keys=129),
    ),
    tolerance=tolerance(seen_causally),
    hints=(
        "Two numbers differ from causal_kernel: where this head's keys begin, and how "
        "many keys lie ahead of the first query.",
        "There are batch * kv_heads rows of keys * D numbers: this program's begin at "
        "(b * kv_heads + h // (heads // kv_heads)) * keys. ahead = keys - n, and "
        "query row sees cols <= rows + ahead.",
        "stop = tl.minimum(keys, (tl.program_id(0) + 1) * ROWS + ahead); seen = "
        "(cols[None, :] <= rows[:, None] + ahead) & (cols[None, :] < keys).",
    ),
    onward="Put the heads of a group into one tile: how often is the cache read then?",
    # The two blocks of queries see three and four of the four blocks of keys.
    counts=(*moves({"k": 7 / 2, "v": 7 / 2}), *products(2 * 2 * 7 * 64 * 64 * 64)),
    structure=(
        BY_ABSORB,
        Structure(
            runs_no=("repeat", "expand", "index", "gather", "take"),
            message="the values are right, and the KV heads were copied for every "
            "query head that reads them: they are shared, so that each lies in memory "
            "once. Let the kernel find a head's keys.",
        ),
    ),
    needs=("absorb_tile",),
    prelude=PRELUDE,
)
