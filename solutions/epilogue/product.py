"""A product with a matrix and what follows it at once: ``linear`` and its gradient."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.operators import operator
from solutions.epilogue.activations import NONE, finished, through
from solutions.matmul import matmul
from solutions.tensor_cores import gemm

try:  # Gluon is an experimental part of Triton: it may be absent, or have moved
    from solutions.epilogue import hopper
except ImportError:  # pragma: no cover
    hopper = None  # type: ignore[assignment]

HALVES = (torch.float16, torch.bfloat16)


def multiplied(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str = NONE,
    residual: torch.Tensor | None = None,
    *,
    keep: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute ``activation(x weightᵀ + bias) + residual`` by the machine's best kernel.

    Args:
        x: (rows, inner).
        weight: (columns, inner).
        bias: (columns).
        activation: as ``named`` has it.
        residual: (rows, columns).
        keep: return what the activation was applied to, as well.
    """
    x, weight = by_rows(x), by_rows(weight)
    if hopper is not None and hopper.refuses(x, weight) is None:
        other = None if residual is None else residual.contiguous()
        bias = None if bias is None else bias.contiguous()
        return hopper.multiplied(x, weight, bias, activation, other, keep=keep)
    out, pre = finished(_product(x, weight), bias, activation, residual)
    return out.to(x.dtype), pre.to(x.dtype) if keep else None


def by_rows(x: torch.Tensor) -> torch.Tensor:
    """Copy what has no rows in memory that begin at multiples of 16 bytes."""
    whole = x.stride(1) == 1 and x.stride(0) >= x.shape[1]
    aligned = x.stride(0) * x.element_size() % 16 == 0 and x.data_ptr() % 16 == 0
    return x if whole and aligned else x.contiguous()


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Multiply in fp32, or fp64 for fp64: on a GPU by chapter 6 and 7's kernels."""
    if x.device.type == "cuda":
        if x.dtype in HALVES:
            return gemm(x, weight.mT, out_dtype=torch.float32)
        return matmul(x, weight.mT)
    wide = torch.promote_types(x.dtype, torch.float32)
    return x.to(wide) @ weight.to(wide).mT


@operator("linear")
def linear_operator(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str,
    keep: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Multiply, and return the pre-activation too, or nothing, if it is not kept."""
    out, pre = multiplied(x, weight, bias, activation, residual, keep=keep)
    return out, x.new_empty(0) if pre is None else pre


@linear_operator.register_fake
def _(
    x: torch.Tensor, weight: torch.Tensor, bias: Any, residual: Any, activation: str,
    keep: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    shape = (x.shape[0], weight.shape[0])
    return x.new_empty(shape), x.new_empty(shape if keep else 0)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, bias, residual, ctx.activation, keep = inputs
    out, pre = output
    ctx.mark_non_differentiable(pre)
    ctx.set_materialize_grads(False)  # else zeros are written, of what was kept
    # ReLU's slope is seen in its result, if nothing was added to that.
    ctx.again = ctx.activation != NONE and not keep
    if ctx.again and ctx.activation == "relu" and residual is None:
        pre, ctx.again = out, False
    ctx.save_for_backward(x, weight, bias, pre)


def _gradient(
    ctx: Any, slope: torch.Tensor | None, _: Any
) -> tuple[torch.Tensor | None, ...]:
    if slope is None:
        return (None,) * len(ctx.needs_input_grad)
    x, weight, bias, pre = ctx.saved_tensors
    of_x, of_weight, of_bias, of_residual, *_ = ctx.needs_input_grad
    inner = None
    if of_x or of_weight or of_bias:
        if ctx.again:
            pre = linear_operator(x, weight, bias, None, NONE, False)[0]
        inner = slope.contiguous()
        if ctx.activation != NONE:
            inner = _through(inner, pre, ctx.activation)
    return (
        inner @ weight if of_x else None,
        inner.mT @ x if of_weight else None,
        inner.sum(0) if of_bias else None,
        slope if of_residual else None,
        None,
        None,
    )


linear_operator.register_autograd(_gradient, setup_context=_keep)


@operator("through_activation")
def _through(slope: torch.Tensor, pre: torch.Tensor, activation: str) -> torch.Tensor:
    return through(slope, pre, activation)


_through.register_fake(lambda slope, pre, activation: torch.empty_like(slope))
