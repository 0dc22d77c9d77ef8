"""Layer norm with a ReLU, a block a row, 16 bytes an instruction."""

from __future__ import annotations

import torch

from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    Output,
    Outputs,
    Problem,
    Structure,
)
from autograder.exercises.layernorm.shared import (
    NORM_TOLERANCE,
    THREADS,
    draw_affine,
    draw_rows,
    eps_of,
    norm,
    rows_case,
    timed,
)
from autograder.ideals import barriers, moves


def _problem(case: Case, generator: torch.Generator) -> Problem:
    x = draw_rows(case, generator)
    weight, bias = draw_affine(case, generator)
    rows, columns = x.shape
    return Problem(
        {
            "x": x,
            "weight": weight,
            "bias": bias,
            "out": None,
            "columns": columns,
            "eps": eps_of(case),
        },
        {"out": Output((rows, columns), torch.float32)},
        Launch((rows,), (THREADS,)),
    )


def _reference(arguments: Arguments) -> Outputs:
    return {"out": norm(arguments)["out"].clamp(min=0.0)}  # a NaN stays one


LAYER_NORM_RELU = Exercise(
    id="layer_norm_relu",
    title="Sixteen bytes at a time, and a ReLU for nothing",
    kind="core",
    points=25,
    language="cuda",
    entry="kernel",
    name="layer_norm_relu",
    source="solutions/layernorm/vectorized.cu",
    goal="Normalise rows of up to 8,192 floats, a block of 256 threads each, with "
    "128-bit loads and stores, and cut off below zero before you write.",
    requirements=(
        "Thread t holds packs t, t + 256, t + 512, … of four floats in `v`; `columns` "
        "is a multiple of 4.",
        "x, weight and bias are each loaded once a row, 16 bytes an instruction.",
        "Two sums of the block, at two barriers each.",
        "Negative results become 0; a NaN stays a NaN.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        rows_case(6, 2048),
        rows_case(3, 8192),
        rows_case(4, 1000),
        rows_case(3, 4),
        rows_case(3, 36, "offset"),
        rows_case(4, 260, "small"),
        rows_case(3, 1028, "nan"),
    ),
    tolerance=NORM_TOLERANCE,
    hints=(
        "It is the exercise before with float4 in place of float, and block_sum in "
        "place of the shuffles.",
        "Load: v[k] = i < fours ? in[i] : float4{0, 0, 0, 0} with i = threadIdx.x + "
        "256 * k. Every thread must call block_sum, also one that holds nothing: call "
        "it outside of any if.",
        "sum += four(v[k]);  mean = block_sum(sum) / columns;  then v[k] = {v[k].x - "
        "mean, …}, and squares of those with i < fours;  rstd = rsqrtf(block_sum("
        "squares) / columns + eps);  to[i] = {relu(v[k].x * rstd * w[i].x + b[i].x), …}"
        "",
    ),
    onward="What would a kernel of its own for the ReLU have cost, in bytes?",
    counts=(*moves({"weight": 6, "bias": 6}, width=16), barriers(4)),
    structure=(
        Structure(
            holds=("LDG.E.128", "STG.E.128"),
            message="The values are right, and the machine code lacks a 128-bit load "
            "or store (LDG.E.128, STG.E.128). Move whole float4s.",
        ),
    ),
    speed=timed(16384, 8192, 4, {"bronze": 0.65, "silver": 0.80, "gold": 0.90}),
)
