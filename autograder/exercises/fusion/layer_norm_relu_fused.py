"""A row of layer norm with its ReLU in one Triton program.

**Tolerance.** Of rows in fp32 it is chapter 5's, which ReLU does not widen: two numbers
come no farther apart where what is below zero is cut off. A product of rows in fp16 is
made of exact numbers in fp32 all the same, and its result rounded once, by 0.5 * eps of
fp16: 1 * eps is allowed, so that either neighbour is right; sums in 16 bits are not.
"""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)
from autograder.exercises.fusion.shared import CONVERTED_INSIDE
from autograder.exercises.layernorm.shared import (
    affine,
    draw_affine,
    draw_rows,
    eps_of,
    norm_scale,
    parts,
    rows_case,
    timed,
)
from autograder.ideals import moves

HALF = torch.float16
_FACTOR = 2.0
_ROWS = 8


def norm_case(
    rows: int,
    columns: int,
    regime: str = "distinct",
    dtype: torch.dtype = torch.float32,
) -> Case:
    """Return a case of one shape, with its dtype in the name."""
    case = rows_case(rows, columns, regime, dtype)
    if dtype != HALF:
        return case
    return Case(f"fp16, {case.name}", case.sizes, regime, dtype)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    x = draw_rows(case, generator)
    weight, bias = draw_affine(case, generator)
    given = {"x": x, "weight": weight, "bias": bias}
    return Problem(
        {n: value.to(case.dtype) for n, value in given.items()} | {"eps": eps_of(case)},
        {"out": Output(tuple(x.shape), case.dtype)},
    )


def _reference(arguments: Arguments) -> Outputs:
    return {"out": torch.relu(affine(parts(arguments).h, arguments))}


def _scale(arguments: Arguments) -> Outputs:
    x = tensor(arguments, "x")
    scale = norm_scale(arguments)["out"]
    if x.dtype == HALF:
        # In fp32 what chapter 5 allows; in fp16 an eps of the result.
        narrow = torch.finfo(torch.float32).eps / torch.finfo(HALF).eps
        wide = narrow * max(1, x.shape[1]) ** 0.5 * scale
        right = _reference(arguments)["out"].nan_to_num(0.0)
        scale = wide + 1.0 / _FACTOR * right
    return {"out": scale}


LAYER_NORM_RELU_FUSED = Exercise(
    id="layer_norm_relu_fused",
    title="Layer norm and ReLU of a row",
    kind="core",
    points=15,
    language="python",
    entry="function",
    name="layer_norm_relu_fused",
    source="solutions/fusion/layer_norm_relu_fused.py",
    goal="Compute `relu(layer_norm(x) * weight + bias)` of each row in one Triton "
    "program, which reads the row once and writes it once.",
    requirements=(
        "x is (rows, columns), contiguous, with at most 8,192 columns; weight and bias "
        "are (columns,). All are fp32, or all fp16; out is like x.",
        "The variance is the mean of `(x - mean)**2`, and `eps` is added to it before "
        "the root. Both sums are taken in fp32 from the row in registers.",
        "The lanes past the row's end change neither sum.",
        "NaN stays NaN, as in `torch.relu`.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        norm_case(_ROWS, 512),
        norm_case(5, 1000),
        norm_case(3, 257, "offset"),
        norm_case(4, 300, dtype=HALF),
        norm_case(4, 100, "small"),
        norm_case(4, 33, "nan"),
        norm_case(3, 1),
        norm_case(0, 7),
        norm_case(2, 8192, "offset"),
        norm_case(2, 700, "large", HALF),
    ),
    tolerance=Tolerance(
        _FACTOR,
        length=lambda case: case.sizes["columns"] if case.dtype != HALF else 1,
        scale=_scale,
    ),
    hints=(
        "As softmax_triton: a program owns the whole row as one block of a power of "
        "two. Two sums follow each other, and the second needs the first: the mean, "
        "then the squares of x - mean. What stands in the lanes past the end, in each?",
        "Loaded as 0.0, a lane past the end adds nothing to the first sum; to the "
        "second it would add mean * mean: d = tl.where(inside, x - mean, 0.0). Convert "
        "with .to(tl.float32) right after each load.",
        "rstd = 1 / tl.sqrt(tl.sum(d * d, 0) / columns + eps); y = d * rstd * weight + "
        "bias; tl.where(y < 0, 0.0, y) is ReLU, and keeps NaN. Launch (rows,) with "
        "BLOCK=triton.next_power_of_2(columns).",
    ),
    onward="What would backward need, and which of it is cheaper computed again than "
    "kept?",
    # Each program reads weight and bias, which stay in the cache.
    counts=moves({"weight": _ROWS, "bias": _ROWS}),
    structure=(
        Structure(
            holds=("triton.jit", "tl.load", "tl.store", "tl.sum"),
            lacks=("torch.relu", "torch.layer_norm", "x.mean", "x.var"),
            runs_no=("layer_norm", "relu", "aten.mean", "aten.var", "clamp"),
            message="The values are right, and it is not your Triton kernel alone that "
            "made them: mean, variance and ReLU belong into it.",
        ),
        CONVERTED_INSIDE,
    ),
    speed=timed(16384, 8192, 4, {"bronze": 0.60, "silver": 0.80, "gold": 0.90}),
    prelude="import torch\nimport kernelwright as kw\n"
    "import triton\nimport triton.language as tl\n",
)
