"""A row in pieces: many programs a row, whose pairs are put together."""

from __future__ import annotations

import torch

from autograder.exercise import Case, Exercise, Output, Problem
from autograder.exercises.softmax.shared import (
    IN_FP32,
    PRELUDE,
    TOLERANCE,
    draw_rows,
    in_triton,
    rows_case,
    softmax,
    timed,
)
from autograder.ideals import moves

HALF = torch.float16
PIECE = 4096  # columns of one program, as the stub says


def _draw_long(case: Case, generator: torch.Generator) -> torch.Tensor:
    x = draw_rows(case, generator)
    if case.regime == "masked":  # a whole piece of the first row
        x[0, :PIECE] = -torch.inf
    if case.regime == "hollow":  # such a piece's maximum must not lift the row's
        x[:, :PIECE] = -torch.inf
        x[:, PIECE:] -= 300.0
    return x


def _long_problem(case: Case, generator: torch.Generator) -> Problem:
    x = _draw_long(case, generator)
    return Problem({"x": x}, {"out": Output(tuple(x.shape), case.dtype)})


SOFTMAX_LONG_ROWS = Exercise(
    id="softmax_long_rows",
    title="A row in pieces",
    kind="core",
    points=20,
    language="python",
    entry="function",
    name="softmax_long_rows",
    source="solutions/softmax/long_rows.py",
    goal="Split each row among many programs: one kernel leaves a maximum and a total "
    "of each piece, a second puts them together and writes.",
    requirements=(
        "x is (rows, columns), contiguous, fp32 or fp16; out is like x; any number of "
        "pieces of 4,096 columns, the last one shorter.",
        "`piece_kernel` leaves (maximum, total) of its piece. One that is all -inf "
        "adds nothing to its row: (-inf, 0).",
        "`combine_kernel` brings the totals of all pieces to the row's maximum.",
        "Maxima, exponentials and totals in fp32.",
        "x is loaded twice, once by each kernel; all arithmetic is theirs, without "
        "torch's functions and tl.softmax.",
    ),
    problem=_long_problem,
    reference=softmax,
    cases=(
        rows_case(2, 8192),
        rows_case(2, 10_000, "growing"),
        rows_case(6, 5000, "masked"),
        rows_case(3, 4100, "filled"),
        rows_case(2, 4097, "far"),
        rows_case(3, 100),
        rows_case(1, 20_000, "growing", HALF),
        rows_case(8, 300, "low", HALF),
        rows_case(2, 1),
        rows_case(0, 5000),
    ),
    tolerance=TOLERANCE,
    hints=(
        "The pair of a piece is what a thread kept in softmax_online. Who can merge "
        "them, when the first kernel's programs do not wait for each other?",
        "piece_kernel: maximum, and the sum of exp(x - maximum), with 0 in the place "
        "of a maximum of -inf. combine_kernel: the largest of maxima, and totals "
        "brought to it. Both have a program for each row and piece.",
        "maximum = tl.max(maxima, 0); total = tl.sum(totals * tl.exp(maxima - "
        "maximum), 0); out = tl.exp(x - maximum) / total. The grid of both is (rows, "
        "pieces), and ROOM=triton.next_power_of_2(pieces).",
    ),
    onward="Few rows and many pieces, or many rows and none: where would you change?",
    # And a few pairs of a maximum and a total.
    counts=moves(2),
    structure=(in_triton("tl.max", "tl.sum"), IN_FP32),
    speed=timed(4096, 65536, {"bronze": 0.35, "silver": 0.48, "gold": 0.58}),
    prelude=PRELUDE,
)
