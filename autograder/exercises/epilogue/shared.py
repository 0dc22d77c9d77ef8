"""What the exercises of chapter 12 share: layers, GELU in float64, the tolerance.

**Tolerance.** Products of 16-bit numbers are exact in fp32. The k terms of a sum, and
the bias, are added in any order: an error of about sqrt(k) roundings of half an eps of
fp32, each of a partial sum that |x| |weight| + |bias| bounds; twice that is allowed,
and three times more for GELU, which multiplies errors by up to 1.13 and is itself off
by a few units in the last place of what it is given. The result is rounded once to 16
bits: it is one of the two numbers beside the exact one, at most 1 eps of it away. So

    |error| <= eps16 * |out| + eps32 * (sqrt(k) + 3) * (|x| |weight| + |bias|).

What is rounded before the activation as well does not keep it: below zero GELU is much
smaller than its argument, and so is what it may be off by.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, Case, Outputs, Structure, Tolerance

PRELUDE = (
    "import torch\nimport kernelwright as kw\n"
    "import triton\nimport triton.language as tl\n"
)
EPS32 = torch.finfo(torch.float32).eps
HALF = torch.float16

_REGIMES = {
    "distinct": "normal values",
    "offset": "biases far larger than the products",
    "cold": "most sums below zero",
    "large": "sums past fp16's range",
    "special": "NaN and Inf among them",
}


def linear_case(m: int, n: int, k: int, regime: str = "distinct") -> Case:
    """Return a case of one shape, named as the learner reads it."""
    name = f"({m:,} x {k:,}) ({n:,} x {k:,})ᵀ, {_REGIMES[regime]}"
    return Case(name, {"m": m, "n": n, "k": k}, regime, HALF)


def draw_layer(
    rows: int, inputs: int, outputs: int, case: Case, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw x, weight and bias, whose sums are of the size of 1; no two are alike."""
    x = torch.randn(rows, inputs, generator=generator)
    weight = torch.randn(outputs, inputs, generator=generator)
    weight *= 1.5 / max(1, inputs) ** 0.5
    bias = torch.randn(outputs, generator=generator)
    if case.regime == "offset":  # a product that is rounded first is off by 0.03
        bias *= 40.0
        x *= 20.0
    elif case.regime == "cold":
        bias -= 2.0
    elif case.regime == "large":
        x = 3_000.0 * (1.0 + 0.1 * x)
        weight = weight.abs() + 0.1 * bias[:, None].sign()
    elif case.regime == "special":
        for start, value in enumerate((torch.nan, torch.inf, -torch.inf)):
            x.view(-1)[start * 7 :: 1031] = value
    return x.to(case.dtype), weight.to(case.dtype), bias.to(case.dtype)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """Return x times the share of a normal distribution below it."""
    return torch.nn.functional.gelu(x)


def linear(arguments: Arguments) -> torch.Tensor:
    """Return x weightᵀ + bias in float64."""
    x, weight, bias = (tensor(arguments, n).double() for n in ("x", "weight", "bias"))
    return x @ weight.mT + bias


def magnitudes(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Return absolute values in float64; NaN and Inf, which no sum survives, as 0."""
    return [t.double().abs().nan_to_num(0.0, 0.0, 0.0) for t in tensors]


def scaled(out: torch.Tensor, rounding: torch.Tensor, dtype: torch.dtype) -> Outputs:
    """Return what rounding is relative to, where the sums are off by ``rounding``."""
    return {"out": magnitudes(out)[0] + rounding / torch.finfo(dtype).eps}


def tolerance_of(activation: Callable[[torch.Tensor], torch.Tensor]) -> Tolerance:
    """Return the tolerance of a linear layer with an activation."""

    def scale(arguments: Arguments) -> Outputs:
        given = [tensor(arguments, n) for n in ("x", "weight", "bias")]
        x, weight, bias = magnitudes(*given)
        sums = x @ weight.mT + bias
        rounding = EPS32 * (x.shape[1] ** 0.5 + 3) * sums
        return scaled(activation(linear(arguments)), rounding, given[0].dtype)

    return Tolerance(factor=1.0, scale=scale)


def linear_gelu(arguments: Arguments) -> Outputs:
    """Return gelu(x weightᵀ + bias)."""
    return {"out": gelu(linear(arguments))}


LINEAR_TOLERANCE = tolerance_of(gelu)


# Registers have no address: what is found by an index that is known at run time lies
# in local memory, which is global memory of the thread's own.
IN_REGISTERS = (
    Structure(
        holds=("HMMA",),
        lacks=("LDL", "STL"),
        arch="sm_80",
        message="The values are right. Wanted were the tensor cores (HMMA) for the "
        "products, and the sums in registers, not in local memory (LDL, STL): put "
        "#pragma unroll before each loop over sum, so that all indices are known.",
    ),
    Structure(
        lacks=("DADD", "DMUL", "DFMA"),
        arch="sm_80",
        message="The values are right, and the machine code computes in double (DADD, "
        "DMUL, DFMA): write 0.5f, not 0.5.",
    ),
)


def in_triton(*needed: str) -> Structure:
    """Return what a Triton answer must use, and what torch must not have done."""
    return Structure(
        holds=("triton.jit", "tl.load", "tl.store", "tl.dot", *needed),
        runs_no=(
            "aten.mm",
            "aten.addmm",
            "linear",
            "matmul",
            "bmm",
            "gelu",
            "aten.erf",
        ),
        message="The values are right, and it is not your Triton kernel alone that "
        "made them: products, bias and GELU belong into it.",
    )
