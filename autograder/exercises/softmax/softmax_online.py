"""Softmax in two sweeps: a block a row, pairs that merge by the online rule."""

from __future__ import annotations

from autograder.exercise import Exercise, Structure
from autograder.exercises.softmax.shared import (
    TOLERANCE,
    block_problem,
    rows_case,
    softmax,
    timed,
)
from autograder.ideals import barriers, moves

SOFTMAX_ONLINE = Exercise(
    id="softmax_online",
    title="Softmax in two sweeps",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="softmax_online",
    source="solutions/softmax/online.cu",
    goal="Make the softmax of each row with one sweep for the maximum and the sum "
    "together, and one to write.",
    requirements=(
        "A block of 256 threads a row, any number of columns; each thread keeps a "
        "maximum and a total.",
        "`merge` puts two pairs together by the online rule; a pair of -INFINITY and 0 "
        "has seen nothing.",
        "x is read twice and out written once, coalesced; at most two barriers.",
        "A row that is all -inf gives NaN, as in torch, and so does one with a NaN or "
        "+inf.",
    ),
    problem=block_problem,
    reference=softmax,
    cases=(
        rows_case(4, 1024),
        rows_case(3, 1000, "growing"),
        rows_case(3, 257, "far"),
        rows_case(5, 33),
        rows_case(3, 255, "masked"),
        rows_case(4, 31, "large"),
        rows_case(9, 1),
        rows_case(2, 0),
        rows_case(4, 300, "special"),
        rows_case(3, 300, "deep"),
        rows_case(4, 200, "filled"),
    ),
    tolerance=TOLERANCE,
    hints=(
        "One value x is a pair as well: its maximum is x, and its total exp(x - x) = "
        "1. So one rule serves for values, threads, lanes and warps.",
        "merge: the new maximum is the larger; each total times exp(its own maximum - "
        "the new one), added. Then a thread over its columns, five shuffles of both "
        "numbers, and the eight pairs in room after a barrier.",
        "both.total = a.total * expf(a.maximum - both.maximum) + b.total * "
        "expf(b.maximum - both.maximum), after returning b if a has seen nothing and "
        "a if b has not. mine = merge(mine, {x[c], 1.0f}) for each column.",
    ),
    onward="Two exponentials for each element, where three sweeps need one. When is "
    "the third sweep cheaper?",
    counts=(*moves(2), barriers(1, 2)),
    structure=(
        Structure(
            holds=("SHFL",),
            lacks=("ATOMS", "ATOMG", "RED", "DADD", "DMUL", "DFMA"),
            message="The values are right. Wanted were shuffles within the warps "
            "(SHFL), no atomics and no double.",
        ),
    ),
    speed=timed(16384, 8192, {"bronze": 0.25, "silver": 0.33, "gold": 0.40}),
)
