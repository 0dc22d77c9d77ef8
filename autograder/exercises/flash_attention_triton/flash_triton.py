"""A walk over the keys of a head, a tile at a time."""

from __future__ import annotations

from autograder.exercise import Exercise
from autograder.exercises.flash_attention_triton.shared import (
    BY_ABSORB,
    FULL_CASES,
    PRELUDE,
    forward_problem,
    full,
    seen_by_all,
    tolerance,
)
from autograder.ideals import moves, products

FLASH_TRITON = Exercise(
    id="flash_triton",
    title="A walk over the keys",
    kind="core",
    points=5,
    language="python",
    entry="function",
    name="flash_triton",
    source="solutions/flash_attention_triton/tiled.py",
    goal="Let a program walk over the keys of its head, and absorb them tile by tile.",
    requirements=(
        "`absorb` of the last exercise takes each tile in; `seen` is (ROWS, COLS).",
        "Keys from `n` on do not exist: they are loaded as zeros and must not be seen.",
        "Each program reads q, k and v of its head once.",
    ),
    problem=forward_problem,
    reference=full,
    cases=FULL_CASES,
    tolerance=tolerance(seen_by_all),
    hints=(
        "Five things happen with each tile: which columns, their keys, their values, "
        "who sees them, absorb.",
        "cols = first + tl.arange(0, COLS), where first goes from 0 to n in steps of "
        "COLS. load_rows(k_ptr, head, cols, n, D) puts zeros where cols >= n.",
        "seen = (rows[:, None] >= 0) & (cols[None, :] < n) has both dimensions; then "
        "most, total, acc = absorb(q, k, v, seen, scale, most, total, acc).",
    ),
    onward="How often is each key read, by all programs together?",
    counts=(*moves({"k": 2, "v": 2}), *products(2 * 2 * 128 * 128 * 64)),
    structure=(BY_ABSORB,),
    needs=("absorb_tile",),
    prelude=PRELUDE,
)
