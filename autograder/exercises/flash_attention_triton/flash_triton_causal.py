"""A causal walk, which skips what nobody sees."""

from __future__ import annotations

from autograder.exercise import Exercise
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

FLASH_TRITON_CAUSAL = Exercise(
    id="flash_triton_causal",
    title="Causal, and skipping what nobody sees",
    kind="core",
    points=5,
    language="python",
    entry="function",
    name="flash_triton_causal",
    source="solutions/flash_attention_triton/causal.py",
    goal="Query `i` sees the keys `j <= i`; tiles that no query of the program sees "
    "are neither loaded nor multiplied.",
    requirements=(
        "The loop over keys ends with the tile on the diagonal.",
        "In that tile a mask hides what lies ahead of each query.",
        "The rest of the walk is that of flash_kernel.",
    ),
    problem=forward_problem,
    reference=causal,
    cases=(
        attention_case(192, heads=2),
        attention_case(100, heads=2),
        attention_case(129, 32, regime="growing"),
        attention_case(1),
        attention_case(130, 16, regime="large"),
    ),
    tolerance=tolerance(seen_causally),
    hints=(
        "Two lines differ from flash_kernel. What is the last key that any row of this "
        "program sees?",
        "Program p owns rows p * ROWS to (p + 1) * ROWS - 1, so no key from "
        "(p + 1) * ROWS on is seen; nor is there one from n on. "
        "seen = cols[None, :] <= rows[:, None].",
        "stop = tl.minimum(n, (tl.program_id(0) + 1) * ROWS), and in the loop seen = "
        "cols[None, :] <= rows[:, None].",
    ),
    onward="Only the last tile needs the mask. Split the loop in two: what is gained?",
    counts=(
        # The blocks of queries see one, two and three of the three of keys.
        *moves({"k": 6 / 3, "v": 6 / 3}),
        *products(2 * 2 * 6 * 64 * 64 * 64),
    ),
    structure=(BY_ABSORB,),
    needs=("absorb_tile",),
    prelude=PRELUDE,
)
