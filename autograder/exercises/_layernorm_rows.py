"""Chapter 5: layer norm of rows in registers, of a warp and of a block."""

from __future__ import annotations

from collections.abc import Callable

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    NearMiss,
    Output,
    Outputs,
    Problem,
    Structure,
)
from autograder.exercises._layernorm import (
    NORM_TOLERANCE,
    STEM,
    THREADS,
    affine,
    draw_affine,
    draw_rows,
    eps_of,
    hidden_rows,
    mistaken,
    parts,
    rows_case,
    timed,
    warps_launch,
)
from autograder.exercises._layernorm_mistakes import (
    BLOCK_MISTAKES,
    LAYER_NORM_MISTAKES,
    WARP_MISTAKES,
)
from autograder.totals import barriers, moves

# --- layer_norm ---------------------------------------------------------------------


def _rows_problem(launch: Callable[[int], Launch]) -> Callable[..., Problem]:
    def problem(case: Case, generator: torch.Generator) -> Problem:
        x = draw_rows(case, generator)
        weight, bias = draw_affine(case, generator)
        rows, columns = x.shape
        return Problem(
            {
                "x": x,
                "weight": weight,
                "bias": bias,
                "out": None,
                "rows": rows,
                "columns": columns,
                "eps": eps_of(case),
            },
            {"out": Output((rows, columns), torch.float32)},
            launch(rows),
        )

    return problem


def _reference(arguments: Arguments) -> Outputs:
    return {"out": affine(parts(arguments).h, arguments)}


LAYER_NORM = Exercise(
    id="layer_norm",
    stem=STEM,
    title="A warp a row, read once",
    kind="core",
    points=25,
    language="cuda",
    entry="kernel",
    name="layer_norm",
    source="solutions/layernorm/warp_row.cu",
    goal="Normalise rows of up to 1,024 floats, each by one warp that holds the row in "
    "its registers: x is read once.",
    requirements=(
        "Lane l of a warp holds elements l, l + 32, l + 64, … of its row in `v`.",
        "Mean first, then the sum of squared deviations, both by shuffles: no shared "
        "memory, no barrier.",
        "Right for every row length from 1 to 1,024.",
        "x, weight and bias are each loaded once a row.",
    ),
    problem=_rows_problem(warps_launch),
    reference=_reference,
    cases=(
        rows_case(16, 768),
        rows_case(5, 1000),
        rows_case(3, 33),
        rows_case(7, 31, "offset"),
        rows_case(4, 1),
        rows_case(4, 257, "small"),
        rows_case(3, 1024, "nan"),
    ),
    hidden=hidden_rows(1025),
    tolerance=NORM_TOLERANCE,
    near_misses=(
        *LAYER_NORM_MISTAKES,
        *WARP_MISTAKES,
    ),
    hints=(
        "A sum over the row is two sums: one over the lane's own elements, in a loop, "
        "and one over the lanes, by shuffles that halve the distance.",
        "With __shfl_xor_sync every lane ends with the sum; with __shfl_down_sync only "
        "lane 0. Every lane needs the mean. Then subtract it from each v[k] that "
        "exists, and sum the squares of these in the same way.",
        "v[k] = c < columns ? x[row * columns + c] : 0.0f;  sum += v[k];  …  for "
        "(int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffff, "
        "sum, offset);  mean = sum / columns;  …  rsqrtf(squares / columns + eps)",
    ),
    onward="Take #pragma unroll away and ask layer_norm.resources('sm_90') where v is.",
    counts=(*moves({"weight": 16, "bias": 16}), barriers(0)),
    structure=(
        Structure(
            holds=("SHFL",),
            lacks=("STS", "ATOMS"),
            message="The values are right, and the machine code does not hold what is "
            "asked: the lanes' sums are to be added by shuffles (SHFL), with no shared "
            "memory (STS).",
        ),
    ),
    speed=timed(131072, 1024, 4, {"bronze": 0.55, "silver": 0.70, "gold": 0.80}),
)

# --- layer_norm_relu ------------------------------------------------------------------


def _block_problem(case: Case, generator: torch.Generator) -> Problem:
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


def _cut(values: torch.Tensor) -> torch.Tensor:
    return values.clamp(min=0.0)  # a NaN stays one


LAYER_NORM_RELU = Exercise(
    id="layer_norm_relu",
    stem=STEM,
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
    problem=_block_problem,
    reference=lambda arguments: {"out": _cut(_reference(arguments)["out"])},
    cases=(
        rows_case(6, 2048),
        rows_case(3, 8192),
        rows_case(4, 1000),
        rows_case(3, 4),
        rows_case(3, 36, "offset"),
        rows_case(4, 260, "small"),
        rows_case(3, 1028, "nan"),
    ),
    hidden=hidden_rows(8193, 4),
    tolerance=NORM_TOLERANCE,
    near_misses=(
        NearMiss(
            "no relu",
            mistaken(lambda p, arguments: affine(p.h, arguments)),
            "Negative results are still there: the ReLU is missing.",
        ),
        NearMiss(
            "relu before the affine",
            mistaken(lambda p, arguments: affine(_cut(p.h), arguments)),
            "The ReLU stands before weight and bias; it is the last thing that happens."
            "",
        ),
        NearMiss(
            "relu before the bias",
            mistaken(
                lambda p, arguments: (
                    _cut(p.h * tensor(arguments, "weight").double())
                    + tensor(arguments, "bias").double()
                )
            ),
            "The ReLU stands before the bias; it is the last thing that happens.",
        ),
        NearMiss(
            "nan lost",
            mistaken(
                lambda p, arguments: _cut(affine(p.h, arguments)).nan_to_num(nan=0.0)
            ),
            "NaN has become 0: fmaxf(0, NaN) is 0. A NaN must stay one, or nobody sees "
            "that something went wrong: value < 0 ? 0 : value.",
        ),
        *(
            NearMiss(
                miss.name,
                lambda arguments, miss=miss: {  # type: ignore[misc]
                    "out": _cut(miss.output(arguments)["out"])
                },
                miss.message,
            )
            for miss in (*LAYER_NORM_MISTAKES, *BLOCK_MISTAKES)
        ),
    ),
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
            message="The values are right, and the machine code holds no 128-bit load "
            "and store (LDG.E.128, STG.E.128). Move whole float4s.",
        ),
    ),
    speed=timed(16384, 8192, 4, {"bronze": 0.65, "silver": 0.80, "gold": 0.90}),
)
