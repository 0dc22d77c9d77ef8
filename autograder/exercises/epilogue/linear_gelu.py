"""The epilogue of a tensor-core product: bias, GELU, one rounding, stored as pairs."""

from __future__ import annotations

import torch

from autograder.exercise import (
    Case,
    Count,
    Exercise,
    Launch,
    Output,
    Problem,
)
from autograder.exercises.epilogue.shared import (
    IN_REGISTERS,
    LINEAR_TOLERANCE,
    draw_layer,
    linear_case,
    linear_gelu,
)
from autograder.ideals import needed

TILE = 128


def _problem(case: Case, generator: torch.Generator) -> Problem:
    m, n, k = (case.sizes[side] for side in ("m", "n", "k"))
    x, weight, bias = draw_layer(m, k, n, case, generator)
    return Problem(
        {"x": x, "weight": weight, "bias": bias, "out": None, "m": m, "n": n, "k": k},
        {"out": Output((m, n), case.dtype)},
        Launch((n // TILE, m // TILE), (128,)),
    )


LINEAR_GELU = Exercise(
    id="linear_gelu",
    title="Bias and GELU in the epilogue",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="linear_gelu",
    source="solutions/epilogue/linear_gelu.cu",
    goal="Finish a linear layer in registers: `out = gelu(x weightᵀ + bias)`, where "
    "`gelu(x) = x (1 + erf(x / √2)) / 2`.",
    requirements=(
        "The main loop is given. Blocks of 128 threads; m and n are multiples of 128, "
        "k of 64, and k may be 0.",
        "Bias and GELU in fp32; each result is rounded once, to fp16.",
        "A lane stores its two neighbours of a row at once, as `half2`; each element "
        "is stored once, and nothing else is written to global memory.",
        "The sums stay in registers: no index of `sum` is left for run time.",
    ),
    problem=_problem,
    reference=linear_gelu,
    cases=(
        linear_case(128, 256, 128),
        linear_case(256, 128, 64),
        linear_case(128, 128, 64, "offset"),
        linear_case(128, 128, 64, "cold"),
        linear_case(128, 128, 0),
        linear_case(128, 128, 64, "special"),
    ),
    tolerance=LINEAR_TOLERANCE,
    hints=(
        "Which four elements of a 16 x 8 result does a lane hold? Begin with the warp: "
        "where in the block's 128 x 128 do its 64 x 64 begin?",
        "Lane 4 g + t holds columns 2t and 2t + 1: of row g in sum[i][j][0] and [1], "
        "of row g + 8 in [2] and [3]. Piece (i, j) begins 16 i rows and 8 j columns "
        "into the warp's part. A lane's columns are the same for all i: so are its "
        "two biases.",
        "row += warp / 2 * 64 + lane / 4; column += warp % 2 * 64 + lane % 4 * 2. For "
        "each j, i and h: r = row + 16 * i + 8 * h, c = column + 8 * j, and "
        "__floats2half2_rn(gelu(sum[i][j][2 * h] + b.x), …) goes to out + r * n + c. "
        "#pragma unroll before each of the three loops.",
    ),
    onward="A request of these stores fills half of each sector that it touches. How "
    "would you fill whole ones, and what would it cost?",
    counts=(
        # Two blocks side by side; each warp may read its biases anew for each piece.
        Count("moved", "global", "load", passes={"x": 2, "bias": 64}),
        Count("bytes", "global", "store"),
        Count("requests", "global", "store", width=4, times=1.9),
        Count("writers", "global", "store", ideal=1, times=1),
        # A block: 8 x 16 parts of out, 8 steps.
        needed("matrix products", 8 * 16 * 8),
    ),
    structure=IN_REGISTERS,
    shares={"correct": 0.6, "counts": 0.4, "speed": 0.0},
)
