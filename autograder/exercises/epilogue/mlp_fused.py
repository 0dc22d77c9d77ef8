"""Two layers in one kernel: the hidden layer is made a tile at a time, never stored.

**Tolerance.** Beside what shared.py says of one layer, each of the hidden values is
rounded to 16 bits for the second product: by up to half an eps of itself, 0.4 in the
mean square. Such errors have either sign, so a sum of them is off by eps16 times 0.4 of
the root of the sum of squares; four standard deviations and more are allowed, twice
that root. What fp32 adds is the first layer's error times |w2|, and the second's own.
"""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.exercises.epilogue.shared import (
    EPS32,
    HALF,
    PRELUDE,
    draw_layer,
    gelu,
    in_triton,
    magnitudes,
    scaled,
)
from autograder.ideals import products

ROWS = 64
_NAMES = ("x", "w1", "b1", "w2", "b2")
_REGIMES = {
    "distinct": "normal values",
    "offset": "biases far larger than the products",
    "cold": "most hidden sums below zero",
    "undone": "sums that grow and fall again",
    "lifted": "first biases that undo large sums",
    "faint": "sums that change the first biases by less than fp16 can say",
    "sunk": "second biases that undo large sums",
    "special": "NaN and Inf among them",
}


def mlp_case(rows: int, d: int, hidden: int, regime: str = "distinct") -> Case:
    """Return a case of one shape, named as the learner reads it."""
    name = f"{rows:,} rows of {d}, hidden layer of {hidden:,}, {_REGIMES[regime]}"
    return Case(name, {"rows": rows, "d": d, "hidden": hidden}, regime, HALF)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    rows, d, hidden = (case.sizes[side] for side in ("rows", "d", "hidden"))
    x, w1, b1 = draw_layer(rows, d, hidden, case, generator)
    plain = Case(case.name, case.sizes, "distinct", case.dtype)
    _, w2, b2 = draw_layer(0, hidden, d, plain, generator)
    if case.regime == "undone":
        w2 += (torch.arange(hidden) < hidden // 2) * 2 - 1
    elif case.regime == "cold":  # what is left is small, and nothing covers it
        b1 -= 1.0
        b2 *= 1e-3
    elif case.regime == "lifted":  # some 500, which a half has in steps of 0.25
        x[:, 0] = 16.0
        w1[:, 0] += 30.0
        b1 -= 16.0 * w1[:, 0]
    elif case.regime == "faint":  # rounded to a half, a sum is its bias, and x is gone
        x, w1, w2 = x.abs() / 2**13, w1.abs(), w2.abs()
        b1 = 0.1 * b1 - 2.5
        b2 = -(gelu(b1.double()) @ w2.double().mT).to(case.dtype)
    elif case.regime == "sunk":
        w2 += 1.0
        b2 -= torch.linspace(0.7, 0.8, d) * hidden
    return Problem(
        {"x": x, "w1": w1, "b1": b1, "w2": w2, "b2": b2},
        {"out": Output((rows, d), case.dtype)},
    )


def _given(arguments: Arguments) -> list[torch.Tensor]:
    return [tensor(arguments, name) for name in _NAMES]


def _mlp(arguments: Arguments) -> Outputs:
    x, w1, b1, w2, b2 = (t.double() for t in _given(arguments))
    return {"out": gelu(x @ w1.mT + b1) @ w2.mT + b2}


def _scale(arguments: Arguments) -> Outputs:
    given = _given(arguments)
    eps = torch.finfo(given[0].dtype).eps
    wide = [t.double() for t in given]
    (hidden,) = magnitudes(gelu(wide[0] @ wide[1].mT + wide[2]))
    x, w1, b1, w2, b2 = magnitudes(*given)
    first = (x.shape[1] ** 0.5 + 3) * (x @ w1.mT + b1)
    second = (w2.shape[1] ** 0.5 + 1) * (hidden @ w2.mT + b2)
    rounding = EPS32 * (first @ w2.mT + second)
    rounding += 2 * eps * (hidden**2 @ (w2**2).mT) ** 0.5
    return scaled(_mlp(arguments)["out"], rounding, given[0].dtype)


MLP_FUSED = Exercise(
    id="mlp_fused",
    title="An MLP in one kernel",
    kind="core",
    points=20,
    language="python",
    entry="function",
    name="mlp_fused",
    source="solutions/epilogue/mlp_fused.py",
    goal="Compute `gelu(x w1ᵀ + b1) w2ᵀ + b2` in one Triton kernel that never writes "
    "the hidden layer.",
    requirements=(
        "x and out are (rows, d), w1 (hidden, d), w2 (d, hidden); contiguous, 16 bits, "
        "d at most 128; rows, d and hidden need not be multiples of anything.",
        "A program owns 64 rows. Sums, biases and GELU (the one with erf) in fp32; a "
        "tile of the hidden layer is rounded to x's type for the second product.",
        "x is read once and out written once; the weights once by each program.",
    ),
    problem=_problem,
    reference=_mlp,
    cases=(
        mlp_case(128, 64, 192),
        mlp_case(100, 48, 150),
        mlp_case(65, 33, 63, "cold"),
        mlp_case(70, 128, 65, "offset"),
        mlp_case(20, 16, 700, "undone"),
        mlp_case(24, 40, 90, "lifted"),
        mlp_case(24, 16, 256, "faint"),
        mlp_case(20, 24, 1500, "sunk"),
        mlp_case(1, 1, 1),
        mlp_case(3, 20, 200, "special"),
    ),
    tolerance=Tolerance(factor=1.0, scale=_scale),
    hints=(
        "Nothing needs the whole hidden layer at once. A tile of it, (ROWS, TILE), is "
        "the left factor of a product that adds to all of out's row: when is that "
        "tile done with?",
        "For each tile of hidden numbers h: w1 as (D, TILE), so that tl.dot(x, w1) is "
        "(ROWS, TILE); the biases of h, GELU; w2 as (TILE, D). Both weights' tiles "
        "need masks in h and in c, other=0.0.",
        "z = tl.dot(x, w1) + b1[None, :]; a = 0.5 * z * (1 + tl.erf(z * 0.70710678)); "
        "acc = tl.dot(a.to(w2.dtype), w2, acc). w1 lies at h[None, :] * d + "
        "c[:, None], w2 at c[None, :] * hidden + h[:, None]. After the loop add b2.",
    ),
    onward="How many rows must a program own before reading the weights again costs "
    "less than writing and reading the hidden layer?",
    counts=(
        # Two programs.
        Count("bytes", "global", "load", passes=dict.fromkeys(_NAMES[1:], 2)),
        Count("bytes", "global", "store"),
        Count("writers", "global", "store", ideal=1, times=1),
        *products(2 * 128 * 64 * 192),
    ),
    structure=(in_triton(),),
    prelude=PRELUDE,
    shares={"correct": 0.6, "counts": 0.4, "speed": 0.0},
)
