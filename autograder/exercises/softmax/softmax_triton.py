"""A row in registers: one Triton program reads it once and writes it once."""

from __future__ import annotations

import torch

from autograder.exercise import Count, Exercise
from autograder.exercises.softmax.shared import (
    IN_FP32,
    PRELUDE,
    TOLERANCE,
    in_triton,
    rows_case,
    rows_problem,
    softmax,
    timed,
)
from autograder.ideals import moves
from kernelwright.trace.triton.report import BUSIEST_PROGRAM

HALF = torch.float16

SOFTMAX_TRITON = Exercise(
    id="softmax_triton",
    title="A row in registers",
    kind="core",
    points=15,
    language="python",
    entry="function",
    name="softmax_triton",
    source="solutions/softmax/fused.py",
    goal="Make the softmax of each row in one Triton program, which reads the row once "
    "and writes it once.",
    requirements=(
        "x is (rows, columns), contiguous, with at most 16,384 columns, fp32 or fp16; "
        "out is like x.",
        "Maximum, exponentials and sum in fp32; the lanes past the row's end change "
        "neither.",
        "A program owns one row, and loads and stores each element once; all "
        "arithmetic is the kernel's, without torch's functions and tl.softmax.",
    ),
    problem=rows_problem,
    reference=softmax,
    cases=(
        rows_case(8, 512),
        rows_case(5, 1000, "growing"),
        rows_case(3, 257, "far"),
        rows_case(4, 300, "cold"),
        rows_case(4, 33, dtype=HALF),
        rows_case(4, 200, "masked"),
        rows_case(4, 90, "filled"),
        rows_case(3, 1),
        rows_case(0, 7),
        rows_case(2, 16_384, "growing", HALF),
    ),
    tolerance=TOLERANCE,
    hints=(
        "A program owns a whole row, as one block of a power of two. What must stand "
        "in the lanes past the end, so that they change neither maximum nor sum?",
        'tl.load with mask=c < columns and other=float("-inf"), then .to(tl.float32). '
        "tl.max(x, 0) and tl.sum(weight, 0) are the reductions; the same mask when "
        "you store.",
        "weight = tl.exp(x - tl.max(x, 0)); out = weight / tl.sum(weight, 0). Launch "
        "softmax_kernel[(rows,)](x, out, columns, "
        "BLOCK=triton.next_power_of_2(columns)).",
    ),
    onward="How many registers does a row of 16,384 take from each of 512 threads?",
    # Of 8 rows of 512 floats a program loads and stores one.
    counts=(*moves(busiest=None), Count(BUSIEST_PROGRAM, ideal=2 * 4 * 512, times=1)),
    structure=(in_triton("tl.max", "tl.sum"), IN_FP32),
    speed=timed(16384, 8192, {"bronze": 0.60, "silver": 0.80, "gold": 0.92}),
    prelude=PRELUDE,
)
