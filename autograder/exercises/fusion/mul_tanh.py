"""tanh(x * y) and its gradients, which keep the inputs and nothing else.

**Tolerance.** The product is rounded by eps/2 of itself, which moves tanh by 0.22 eps;
2 * sigmoid(2 v) - 1 and other forms with one exponential are off by some 3 eps,
whatever tanh is, and so 1 - tanh^2 by some 6 eps: 8 * eps, absolute in the one and
relative to |grad * y| in the other. What is rounded to a half gets one eps of that
more.
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
    Speed,
    Structure,
    Tolerance,
)
from autograder.exercises.fusion.shared import CONVERTED_INSIDE, TIMED
from autograder.ideals import moves

HALF = torch.float16
_FACTOR = 8.0
_EPS = torch.finfo(torch.float32).eps
_SAID = {
    "distinct": "normal values",
    "steep": "products of some 5",
    "far": "products of some 1,000",
    "special": "NaN and Inf among them",
    "summed": "the gradient of a sum (one number, with strides of 0)",
}


def product_case(
    n: int, regime: str = "distinct", dtype: torch.dtype = torch.float32
) -> Case:
    """Return a case of one length, named as the learner reads it."""
    short = ", fp16" if dtype == HALF else ""
    return Case(f"n = {n:,}{short}, {_SAID[regime]}", {"n": n}, regime, dtype)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    x, y = torch.randn(2, n, generator=generator)
    # Of out.sum() autograd hands down one number for all, with strides of 0.
    grad = torch.randn(1 if case.regime == "summed" else n, generator=generator)
    if case.regime == "far":
        x, y = 30 * x, 30 * y
    elif case.regime == "steep":  # an error of the product is many of 1 - tanh^2
        x, y = 2.2 * x, 2.2 * y
    elif case.regime == "special":
        for start, value in enumerate((torch.nan, torch.inf, -torch.inf)):
            x[start::11] = value
    values = {"x": x, "y": y, "grad": grad}
    outputs = {name: Output((n,), case.dtype) for name in ("out", "dx", "dy")}
    return Problem(
        {name: value.to(case.dtype) for name, value in values.items()},
        {**outputs, "kept": Output((min(1, n),), torch.int64)},
    )


def _reference(arguments: Arguments) -> Outputs:
    x, y, grad = (tensor(arguments, name).double() for name in ("x", "y", "grad"))
    out = torch.tanh(x * y)
    slope = grad * (1 - out * out)
    kept = torch.full((min(1, x.numel()),), 2 * x.numel())
    return {"out": out, "dx": slope * y, "dy": slope * x, "kept": kept}


def _scale(arguments: Arguments) -> Outputs:
    x, y, grad = (tensor(arguments, name).double() for name in ("x", "y", "grad"))
    scales = {"out": torch.ones_like(x), "dx": (grad * y).abs(), "dy": (grad * x).abs()}
    dtype = tensor(arguments, "x").dtype
    if dtype == HALF:
        right = _reference(arguments)
        for name, scale in scales.items():
            narrow = scale * (_EPS / torch.finfo(HALF).eps)
            scales[name] = narrow + right[name].abs() / _FACTOR
    return {name: s.nan_to_num(0.0, 0.0, 0.0) for name, s in scales.items()}


MUL_TANH = Exercise(
    id="mul_tanh",
    title="A chain and its gradient",
    kind="core",
    points=20,
    language="python",
    entry="function",
    name="mul_tanh",
    source="solutions/fusion/mul_tanh_triton.py",
    goal="Make `tanh(x * y)` one kernel in Triton, and its gradients one more, as a "
    "`torch.autograd.Function`.",
    requirements=(
        "`x` and `y` are contiguous, of one shape, fp32 or fp16; computed in fp32, and "
        "rounded once.",
        "`save_for_backward` keeps `x` and `y` alone: backward computes tanh again.",
        "backward reads x, y and the gradient, and writes `dx` and `dy`: five passes.",
        "The gradient that comes in need not be contiguous: that of `out.sum()` is one "
        "number for all elements.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        product_case(4096),
        product_case(3001),
        product_case(1025, "steep", HALF),
        product_case(1000, "far"),
        product_case(500, "summed"),
        product_case(300, "special"),
        product_case(7),
        product_case(1),
        product_case(0),
    ),
    tolerance=Tolerance(_FACTOR, scale=_scale),
    hints=(
        "The derivative of tanh(v) is 1 - tanh(v)^2, and v = x * y. By which of the "
        "two is it multiplied for dx, and by which for dy?",
        "tanh(v) is 2 * tl.sigmoid(2 * v) - 1, which overflows for no v. forward keeps "
        "x and y by ctx.save_for_backward(x, y); backward gets them from "
        "ctx.saved_tensors, and returns (dx, dy), in the order of forward's arguments. "
        "What is a gradient in memory that is one number for all elements?",
        "Widen what you load with .to(tl.float32). t = 2 * tl.sigmoid(2 * x * y) - 1; "
        "slope = grad * (1 - t * t); dx is slope * y and dy is slope * x. Launch with "
        "(triton.cdiv(n, 1024),), and give the kernel grad.contiguous().",
    ),
    onward="Keeping out as well would spare the sigmoid in backward. What would it "
    "cost?",
    counts=moves({"x": 2, "y": 2}),
    structure=(
        Structure(
            holds=("triton.jit", "tl.load", "tl.store", "torch.autograd"),
            lacks=("torch.tanh", "x.tanh", "torch.sigmoid"),
            runs_no=("tanh", "aten.mul", "sigmoid", "aten.exp."),
            message="The values are right, and it is not your Triton kernels alone "
            "that made them: the product, tanh and its derivative belong into them.",
        ),
        CONVERTED_INSIDE,
    ),
    speed=Speed(
        peer="copy bandwidth",
        case=product_case(TIMED),
        # Forward three passes, backward five.
        bytes_moved=lambda case: 8 * 4 * case.sizes["n"],
        bands={"bronze": 0.60, "silver": 0.80, "gold": 0.90},
    ),
    prelude="import torch\nimport kernelwright as kw\n"
    "import triton\nimport triton.language as tl\n"
    "from autograder.worker.adapters.training import adapt_product as __adapt__\n",
)
