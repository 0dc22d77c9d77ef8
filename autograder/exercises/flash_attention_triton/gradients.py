"""What chapter 10's gradients are, and what they may err by."""

from __future__ import annotations

import math

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, Case, Output, Outputs, Problem, Tolerance
from autograder.exercises.flash_attention_triton.shared import (
    draw,
    exact,
    seen_causally,
)

_FACTOR = 4.0


def backward_problem(case: Case, generator: torch.Generator) -> Problem:
    """Ask for dq, dk and dv; out and lse are those of the forward pass."""
    q, k, v = draw(case, generator)
    grad = torch.randn(q.shape, generator=generator, device=q.device).half()
    arguments = {"q": q, "k": k, "v": v}
    out = exact(arguments, seen_causally).half()
    s = q.double() @ k.double().mT / math.sqrt(q.shape[3])
    lse = s.masked_fill(~seen_causally(arguments), -math.inf).logsumexp(-1).float()
    outputs = {f"d{name}": Output(tuple(q.shape), torch.float16) for name in "qkv"}
    return Problem({"grad": grad, **arguments, "out": out, "lse": lse}, outputs)


def _weights(arguments: Arguments) -> tuple[torch.Tensor, ...]:
    """Return q, k, v, grad, P and dP in float64."""
    q, k, v, grad = (
        tensor(arguments, name).double() for name in ("q", "k", "v", "grad")
    )
    s = (q @ k.mT / math.sqrt(q.shape[3])).masked_fill(
        ~seen_causally(arguments), -math.inf
    )
    return q, k, v, grad, torch.softmax(s, -1), grad @ v.mT


def gradients(arguments: Arguments) -> Outputs:
    """Return dq, dk and dv in float64."""
    q, k, _, grad, p, dp = _weights(arguments)
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * q.shape[3] ** -0.5
    return {"dq": ds @ k, "dk": ds.mT @ q, "dv": p.mT @ grad}


def _scales(arguments: Arguments) -> Outputs:
    """Add up what the roundings of P, dS, out and the results can move.

    A rounding errs by eps / 2 at most, 0.29 eps in the root mean square, each by
    itself: a sum of them errs by 0.29 eps times the root of the squares' sum, and
    4 eps is fourteen times that, so that a known mistake, whose numbers may be larger,
    is still known. The result is rounded once, or one bit beside it.
    """
    q, k, v, grad, p, dp = _weights(arguments)
    scale, seen = q.shape[3] ** -0.5, seen_causally(arguments)
    out = p @ v
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
    # D_i comes from an out that was rounded: one error for the whole row.
    row = (grad * out).square().sum(-1, keepdim=True).sqrt() * scale
    # Below 2^-14 fp16 keeps no digits: an error of 2^-25, whatever the number.
    ds2 = ds.square() + 2.0**-28 * seen
    p2 = p.square() + 2.0**-28 * seen
    last_bit = 1 / _FACTOR
    return {
        "dq": (ds2 @ k.square()).sqrt()
        + row * (p @ k).abs()
        + last_bit * (ds @ k).abs(),
        "dk": ((ds2 + (p * row).square()).mT @ q.square()).sqrt()
        + last_bit * (ds.mT @ q).abs(),
        "dv": (p2.mT @ grad.square()).sqrt() + last_bit * (p.mT @ grad).abs(),
    }


OF_GRADIENTS = Tolerance(factor=_FACTOR, scale=_scales)
