"""A bias a column, kept in registers while a thread walks down rows."""

from __future__ import annotations

import math

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    Output,
    Outputs,
    Problem,
    Speed,
    Tolerance,
)
from autograder.exercises.fusion.shared import (
    GELU_FACTOR,
    IN_DOUBLE,
    THREADS,
    draw_values,
    sixteen_bytes,
)
from autograder.ideals import moves

_ROWS = 16  # of a block
_SAID = {
    "distinct": "normal values",
    "wide": "values from -20 to 20",
    "large": "values of some 1e30",
    "special": "NaN among them",
}


def table_case(rows: int, columns: int, regime: str = "distinct") -> Case:
    """Return a case of one shape, named as the learner reads it."""
    name = f"{rows:,} x {columns:,}, {_SAID[regime]}"
    return Case(name, {"rows": rows, "columns": columns}, regime)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    rows, columns = case.sizes["rows"], case.sizes["columns"]
    x = draw_values(case, generator, rows, columns)
    bias = torch.randn(columns, generator=generator)
    across = -(-columns // (4 * THREADS))
    return Problem(
        {"x": x, "bias": bias, "out": None, "rows": rows, "columns": columns},
        {"out": Output((rows, columns), torch.float32)},
        Launch((across, max(1, -(-rows // _ROWS))), (THREADS,)),
    )


def _sum(arguments: Arguments) -> torch.Tensor:
    return tensor(arguments, "x").double() + tensor(arguments, "bias").double()


def _reference(arguments: Arguments) -> Outputs:
    v = _sum(arguments)
    inner = math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)
    return {"out": 0.5 * v * (1 + torch.tanh(inner))}


def _magnitude(arguments: Arguments) -> Outputs:
    return {"out": _sum(arguments).abs().nan_to_num(0.0)}


BIAS_GELU = Exercise(
    id="bias_gelu",
    title="A bias that stays in registers",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="bias_gelu",
    source="solutions/fusion/bias_gelu.cu",
    goal="Compute GELU (tanh's form) of `x + bias`, with `bias` read once per block, "
    "not once per row.",
    requirements=(
        "`x` and `out` are (rows, columns), contiguous; `columns` is a multiple of 4, "
        "so each row begins at a multiple of 16 bytes.",
        "Blocks of 256 threads, columns / 1,024 of them across (rounded up), and fewer "
        "down than there are rows: a thread has four columns, and goes from row "
        "`blockIdx.y` on in steps of `gridDim.y`.",
        "`gelu_tanh(v)` is 0.5 v (1 + tanh(0.79788456 (v + 0.044715 v^3))).",
        "In `float`, with 16 bytes per load and store.",
    ),
    problem=_problem,
    reference=_reference,
    # Four blocks of rows first: bias is read four times, and not 64 times.
    cases=(
        table_case(64, 1024),
        table_case(37, 1100),
        table_case(50, 260),
        table_case(16, 36),
        table_case(33, 1028, "wide"),
        table_case(1, 4),
        table_case(0, 8),
        table_case(5, 120, "large"),
        table_case(17, 64, "special"),
    ),
    tolerance=Tolerance(GELU_FACTOR, scale=_magnitude),
    hints=(
        "Which four columns are this thread's? They are the same in every row that it "
        "visits, and so are their biases.",
        "pack = blockIdx.x * blockDim.x + threadIdx.x, if it is below columns / 4. "
        "Load float4 b from bias before the loop; the loop is `for (int row = "
        "blockIdx.y; row < rows; row += gridDim.y)`.",
        "In the loop, at = row * (columns / 4) + pack in long long: v = "
        "reinterpret_cast<const float4*>(x)[at], and to the same place of out goes "
        "make_float4(gelu_tanh(v.x + b.x), …).",
    ),
    onward="bias fits into L2 many times. What does reading it for every row really "
    "cost?",
    counts=moves({"bias": 4}, width=16),
    structure=(sixteen_bytes(IN_DOUBLE),),
    speed=Speed(
        peer="copy bandwidth",
        case=table_case(16384, 4096),
        bytes_moved=lambda case: 8 * case.sizes["rows"] * case.sizes["columns"],
        bands={"bronze": 0.55, "silver": 0.75, "gold": 0.90},
    ),
)
