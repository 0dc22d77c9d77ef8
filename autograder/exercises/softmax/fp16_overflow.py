"""The detective: a softmax of halves that leaves the range of a half."""

from __future__ import annotations

from dataclasses import replace

import torch

from autograder.exercise import Case, Exercise, Structure
from autograder.exercises.softmax.shared import (
    FACTOR,
    TOLERANCE,
    block_problem,
    rows_case,
    softmax,
)
from autograder.ideals import moves


def half_case(rows: int, columns: int, regime: str = "distinct") -> Case:
    """Return a case of halves."""
    return rows_case(rows, columns, regime, torch.float16)


FP16_OVERFLOW = Exercise(
    id="fp16_overflow",
    title="The row that came out as zeros",
    kind="detective",
    points=20,
    language="cuda",
    entry="kernel",
    name="fp16_overflow",
    source="autograder/exercises/softmax/fp16_overflow.cu",
    goal="Mend a softmax of halves that is right on short rows of small numbers, and "
    "gives 0 or NaN on others.",
    requirements=(
        "A block of 256 threads a row; x and out stay halves; the total, and what is "
        "added to it, in float; no double.",
        "Right for any logits that a half holds, and for rows of 70,000 columns.",
        "A row that is all -inf gives NaN.",
        "At most three sweeps over the row, and coalesced.",
    ),
    problem=block_problem,
    reference=softmax,
    cases=(
        half_case(4, 1024),
        half_case(3, 700, "warm"),
        half_case(3, 500, "far"),
        half_case(1, 70_000, "flat"),
        half_case(3, 300, "cold"),
        half_case(4, 129, "masked"),
        half_case(5, 31),
        half_case(16, 300, "low"),
        half_case(3, 1),
    ),
    # An exponential may be a half by the time it is divided: one rounding more.
    tolerance=replace(TOLERANCE, factor=2 * FACTOR),
    hints=(
        "A half ends at 65,504. From which x on is exp(x) more? And how many columns "
        "of exp(8) does it take?",
        "Two faults. Take the maximum of the row away before the exponential, so that "
        "none is over 1; and add them in float, since a row can hold 70,000 ones.",
        "Make part an array of float. First sweep: fmaxf of __half2float(in[c]), from "
        "-INFINITY, and the same tree with fmaxf. Read part[0], then a barrier before "
        "part is used again. Then the sum of expf(__half2float(in[c]) - most).",
    ),
    onward="bfloat16 has the range of a float. Which of the two faults would it hide?",
    # Three sweeps are well, two are best.
    counts=moves(2, times=1.5),
    structure=(
        Structure(
            lacks=("DADD", "DMUL", "DFMA"),
            message="The values are right, and the machine code computes in double "
            "(DADD, DMUL, DFMA): float is wide enough.",
        ),
    ),
)
