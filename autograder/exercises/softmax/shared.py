"""What the exercises of chapter 8 share: rows, softmax in float64, the tolerance.

**Tolerance.** An output is e / total, with e = exp(x - maximum). The difference d =
maximum - x is rounded by eps/2 of itself, which moves e by d * eps/2 of itself; the
exponential is off by two units in the last place, and so is the division, 4 * eps in
all. The total is moved by the mean of its own d, weighed by e, and its N terms of one
sign, added in any order, by 0.29 * eps * sqrt(N). A total that is brought to a new
maximum is multiplied by exponentials of differences that add up to d. So

    |error| <= 2 * eps * (4 + sqrt(N) + d + mean of d) * output,    eps of fp32,

and what is rounded to 16 bits at the end, and never before, gets 0.52 * eps of those
more. The last bits of subnormal numbers are added: there nothing is relative.
"""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Launch,
    Output,
    Outputs,
    Problem,
    Speed,
    Structure,
    Tolerance,
)

THREADS = 256
FACTOR = 2.0
_EPS = torch.finfo(torch.float32).eps
_REGIMES = {
    "distinct": "normal values",
    "growing": "later columns larger",
    "far": "values near 1,000",
    "large": "values of some 10,000",
    "masked": "some -inf, and a row of nothing else",
    "special": "NaN and Inf among them",
    "cold": "values near -300",
    "deep": "values near -30,000",
    "filled": "some at the lowest float, and a row of nothing else",
    "warm": "values near 8",
    "flat": "values near 0.04, one of 0.1",
    "low": "exponentials that most round down in 16 bits",
    "spiked": "one far above, in each row elsewhere",
    "hollow": "4,096 of -inf, then values near -300",
}
PRELUDE = (
    "import torch\nimport kernelwright as kw\n"
    "import triton\nimport triton.language as tl\n"
)


def rows_case(
    rows: int,
    columns: int,
    regime: str = "distinct",
    dtype: torch.dtype = torch.float32,
) -> Case:
    """Return a case of one shape, named as the learner reads it."""
    short = {torch.float16: ", fp16"}.get(dtype, "")
    name = f"{rows:,} x {columns:,}{short}, {_REGIMES[regime]}"
    return Case(name, {"rows": rows, "columns": columns}, regime, dtype)


def draw_rows(case: Case, generator: torch.Generator) -> torch.Tensor:
    """Draw a matrix of logits in the case's regime; its rows differ."""
    rows, columns = case.sizes["rows"], case.sizes["columns"]
    x = torch.randn(rows, columns, generator=generator)
    if case.regime == "growing":  # the running maximum moves again and again
        x += torch.linspace(-6, 6, columns)
    elif case.regime == "far":  # exp alone overflows
        x = 3 * x + 1_000.0
    elif case.regime == "large":
        x *= 10_000.0
    elif case.regime == "masked":
        x[torch.rand(rows, columns, generator=generator) < 0.3] = -torch.inf
        x[-1] = -torch.inf
    elif case.regime == "special":
        x[0, columns // 2] = torch.nan
        x[-1, columns // 3] = torch.inf
    elif case.regime == "cold":
        x = 4 * x - 300.0
    elif case.regime == "deep":  # below whatever number a maximum may begin at
        x = 4 * x - 30_000.0
    elif case.regime == "filled":  # as a mask does that has no -inf
        lowest = torch.finfo(torch.float32).min
        x[torch.rand(rows, columns, generator=generator) < 0.2] = lowest
        x[-1] = lowest
    elif case.regime == "warm":  # exp stays below 65,504, and a sum of a few does not
        x = 8.0 + 0.8 * x.clamp(-3, 3)
    elif case.regime == "spiked":  # a place that is passed over is no maximum
        x += 200.0 * torch.eye(rows, columns)
    elif (
        case.regime == "flat"
    ):  # e^(x - 0.1) is hardly above 15/16: halves drop what is
        x = 0.0478 + 0.0012 * x.clamp(-3, 3)
        x[:, columns // 3] = 0.1
    elif case.regime == "low":  # so that a total of such exponentials shows it
        up, down = (
            values[torch.randint(len(values), (rows, columns), generator=generator)]
            for values in _rounded_up_and_down()
        )
        x = torch.where(x > 1.5, up, down)
        x[:, columns // 3] = 0.0
    else:
        x *= 2.0
    return x.to(case.dtype)


def _rounded_up_and_down() -> tuple[torch.Tensor, torch.Tensor]:
    """Return halves whose exponentials, made halves, are off by 0.4 eps or more."""
    x = -torch.arange(1, 0x4900, dtype=torch.int16).view(torch.float16).double()
    e = torch.exp(x)
    off = (e.half().double() / e - 1) / torch.finfo(torch.float16).eps
    return x[off > 0.4], x[off < -0.4]


def logits(arguments: Arguments) -> torch.Tensor:
    """Return x in float64."""
    return tensor(arguments, "x").double()


def highest(x: torch.Tensor) -> torch.Tensor:
    """Return the maximum along the last dimension, kept; -inf where there is none.

    As fmaxf does, it passes over NaN.
    """
    if x.shape[-1] == 0:
        return x.new_full((*x.shape[:-1], 1), -torch.inf)
    return x.masked_fill(x.isnan(), -torch.inf).amax(-1, keepdim=True)


def softmax(arguments: Arguments) -> Outputs:
    """Return the right output."""
    return {"out": torch.softmax(logits(arguments), -1)}


def block_problem(case: Case, generator: torch.Generator) -> Problem:
    """Return the launch of a block of 256 threads a row, in the case's dtype."""
    x = draw_rows(case, generator)
    rows, columns = x.shape
    return Problem(
        {"x": x, "out": None, "columns": columns},
        {"out": Output((rows, columns), case.dtype)},
        Launch((rows,), (THREADS,)),
    )


def timed(rows: int, columns: int, bands: dict[str, float]) -> Speed:
    """Return the speed gate of a softmax in fp32: each element read and written."""
    return Speed(
        peer="copy bandwidth",
        case=rows_case(rows, columns),
        bytes_moved=lambda case: 8 * case.sizes["rows"] * case.sizes["columns"],
        bands=bands,
    )


def scale(arguments: Arguments) -> Outputs:
    """Return the magnitude that rounding is relative to, in eps of the output."""
    dtype = tensor(arguments, "x").dtype
    facts = torch.finfo(dtype)
    x = logits(arguments)
    p = torch.softmax(x, -1).nan_to_num(0.0)
    below = (highest(x) - x).nan_to_num(0.0, 0.0, 0.0)
    mean = (p * below).sum(-1, keepdim=True)
    root = max(1, x.shape[-1]) ** 0.5
    relative = 4.0 + root + below + mean
    if dtype == torch.float32:
        relative = relative / root  # which the length brings
    else:
        relative = relative * (_EPS / facts.eps) + 0.26
    return {"out": p * relative + torch.finfo(torch.float32).tiny}


TOLERANCE = Tolerance(
    factor=FACTOR,
    # Of an output in 16 bits the scale has all of it, the length too.
    length=lambda case: case.sizes["columns"] if case.dtype == torch.float32 else 1,
    scale=scale,
)


def rows_problem(case: Case, generator: torch.Generator) -> Problem:
    """Return a matrix of rows for a function."""
    x = draw_rows(case, generator)
    return Problem({"x": x}, {"out": Output(tuple(x.shape), case.dtype)})


IN_FP32 = Structure(
    lacks=("tl.float64",),
    message="The values are right, and computed in fp64, 2 to 64 times slower: fp32 "
    "is wide enough.",
)


def in_triton(*needed: str) -> Structure:
    """Return what a Triton answer must use, beside these, and must not have done."""
    # Not tl.exp: tl.exp2 of log2(e) times as much is as good, and one step less.
    return Structure(
        holds=("triton.jit", "tl.load", "tl.store", *needed),
        lacks=("torch.softmax", "torch.exp", "x.softmax", "x.exp", "tl.softmax"),
        runs_no=("softmax", "logsumexp", "aten.exp.", "aten.exp_.", "aten.exp2"),
        message="The values are right, and it is not your Triton kernel alone that "
        "made them: maximum, exponential and sum belong into it.",
    )
