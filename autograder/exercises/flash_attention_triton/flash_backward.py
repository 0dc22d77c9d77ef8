"""Gradients by tiles of keys: dk and dv stay, dq is added to memory."""

from __future__ import annotations

from autograder.exercise import Exercise
from autograder.exercises.flash_attention_triton.gradients import (
    OF_GRADIENTS,
    backward_problem,
    gradients,
)
from autograder.exercises.flash_attention_triton.shared import (
    PRELUDE,
    attention_case,
    made_in_triton,
)
from autograder.ideals import moves, products

FLASH_BACKWARD = Exercise(
    id="flash_backward",
    title="Gradients, by tiles of keys",
    kind="core",
    points=10,
    language="python",
    entry="function",
    name="flash_backward",
    source="solutions/flash_attention_triton/training.py",
    goal="Let a program walk over the queries that see its keys: `dk` and `dv` stay "
    "with it, `dq` is added to memory.",
    requirements=(
        "`tile_gradients` of the last exercise takes each tile of queries in.",
        "Queries that see none of the program's keys are not loaded.",
        "Many programs add to the same rows of `dq`: `tl.atomic_add`.",
    ),
    problem=backward_problem,
    reference=gradients,
    cases=(
        attention_case(128),
        attention_case(100, heads=2),
        attention_case(130, 32, regime="growing"),
        attention_case(1, 16),
        # Counted: three tiles, and heads that are not as wide as a tile is long, so
        # that a walk which begins elsewhere loads more.
        attention_case(192, 32),
    ),
    tolerance=OF_GRADIENTS,
    hints=(
        "Query i sees the keys up to i. Which is the first query that sees a key of "
        "this program, and which is the last?",
        "first goes from mine // ROWS * ROWS to n in steps of ROWS. Of each tile: "
        "rows; q and grad by load_rows; lse and dot by tl.load at head + rows, where "
        "rows < n; seen = (cols[None, :] <= rows[:, None]) & (rows[:, None] < n).",
        "dq, dk, dv = tile_gradients(q, k, v, grad, lse, dot, seen, scale, dk, dv); at "
        "= (head + rows)[:, None] * D + d[None, :]; tl.atomic_add(dq_ptr + at, dq, "
        "mask=rows[:, None] < n).",
    ),
    onward="Run it twice on a GPU: are the bits of dq the same? Why are those of dk?",
    counted=4,
    # What is below the diagonal: six of nine pairs of blocks. Of `out` is made, before,
    # a number a row, as `lse` is.
    counts=(
        *moves({"q": 2, "grad": 2, "lse": 4, "out": 0}, writes=None),
        *products(5 * 6 * 64 * 64 * 32),
    ),
    structure=(made_in_triton("load_rows", "tile_gradients", "store_rows"),),
    needs=("tile_gradients",),
    prelude=PRELUDE,
)
