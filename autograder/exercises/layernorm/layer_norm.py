"""Layer norm of rows in registers, a warp a row."""

from __future__ import annotations

import torch

from autograder.exercise import Case, Count, Exercise, Output, Problem, Structure
from autograder.exercises.layernorm.shared import (
    NORM_TOLERANCE,
    draw_affine,
    draw_rows,
    eps_of,
    norm,
    rows_case,
    timed,
    warps_launch,
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
            "rows": rows,
            "columns": columns,
            "eps": eps_of(case),
        },
        {"out": Output((rows, columns), torch.float32)},
        warps_launch(rows),
    )


LAYER_NORM = Exercise(
    id="layer_norm",
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
    problem=_problem,
    reference=norm,
    cases=(
        rows_case(16, 768),
        rows_case(5, 1000),
        rows_case(3, 33),
        rows_case(7, 31, "offset"),
        rows_case(4, 1),
        rows_case(4, 257, "small"),
        rows_case(3, 1024, "nan"),
    ),
    tolerance=NORM_TOLERANCE,
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
    onward="Let the loops end at `32 * k < columns`, without #pragma unroll, and ask "
    "layer_norm.resources('sm_90') where v is.",
    # Ten a row, or twelve where lane 0 hands the sums on; a block has four rows.
    counts=(
        *moves({"weight": 16, "bias": 16}),
        Count("shuffles", ideal=40, times=1.25),
        barriers(0),
    ),
    structure=(
        Structure(
            holds=("SHFL",),
            lacks=("STS", "ATOMS", "STL"),
            message="The values are right, and the machine code does not hold what is "
            "asked: the lanes' sums are to be added by shuffles (SHFL), with no shared "
            "memory (STS), and `v` is to be in registers, which have no index at run "
            "time: as local memory (STL) it is no nearer than x.",
        ),
    ),
    speed=timed(131072, 1024, 4, {"bronze": 0.55, "silver": 0.70, "gold": 0.80}),
)
