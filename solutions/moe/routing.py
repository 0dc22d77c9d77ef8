"""Which experts a token goes to: launches, and torch's operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import kernelwright as kw
from kernelwright.operators import operator
from solutions.moe import on_cpu

_found = kw.cuda.kernels(Path(__file__).parent)
_WARPS = 8
_C_TYPES = {
    torch.float16: "__half, float",
    torch.bfloat16: "__nv_bfloat16, float",
    torch.float32: "float, float",
    torch.float64: "double, double",
}
_MOST = 1024  # experts that a warp holds: 32 a lane


@operator("moe_route")
def route_operator(
    logits: torch.Tensor, k: int, of_chosen: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose the k greatest of each row, and weigh them by softmax.

    Args:
        logits: (tokens, experts).
        k: how many.
        of_chosen: whether weights are shares of the chosen ones alone.

    Returns:
        Weights, in fp32 (fp64 for fp64), and experts, int32: both (tokens, k).
    """
    logits = logits.contiguous()
    if logits.device.type != "cuda" or logits.shape[1] > _MOST:
        return on_cpu.routed(logits, k, of_chosen)
    return routed(logits, k, of_chosen)


def routed(
    logits: torch.Tensor, k: int, of_chosen: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch ``route``; CPU tensors run on the emulator here."""
    tokens, experts = logits.shape
    wide = torch.promote_types(logits.dtype, torch.float32)
    weights = logits.new_empty(tokens, k, dtype=wide)
    chosen = logits.new_empty(tokens, k, dtype=torch.int32)
    if weights.numel():
        _kernel("route", logits)[kw.cdiv(tokens, _WARPS), 32 * _WARPS](
            logits, weights, chosen, tokens, experts, k, int(of_chosen)
        )
    return weights, chosen


@operator("moe_route_backward")
def backward_operator(
    logits: torch.Tensor,
    weights: torch.Tensor,
    chosen: torch.Tensor,
    slopes: torch.Tensor,
    of_chosen: bool,
) -> torch.Tensor:
    """Return the logits' gradient, (tokens, experts)."""
    logits, slopes = logits.contiguous(), slopes.contiguous()
    if logits.device.type != "cuda" or logits.shape[1] > _MOST:
        return on_cpu.routed_backward(logits, weights, chosen, slopes, of_chosen)
    return routed_backward(logits, weights, chosen, slopes, of_chosen)


def routed_backward(
    logits: torch.Tensor,
    weights: torch.Tensor,
    chosen: torch.Tensor,
    slopes: torch.Tensor,
    of_chosen: bool,
) -> torch.Tensor:
    """Launch ``route_backward``; CPU tensors run on the emulator here."""
    (tokens, k), experts = weights.shape, logits.shape[1]
    out = torch.empty_like(logits)
    if out.numel():
        _kernel("route_backward", logits)[kw.cdiv(tokens, _WARPS), 32 * _WARPS](
            logits, weights, chosen, slopes, out, tokens, experts, k, int(of_chosen)
        )
    return out


def _kernel(name: str, logits: torch.Tensor) -> kw.cuda.Kernel:
    """Return the kernel whose lanes hold as many experts as there are, or more."""
    each = kw.cdiv(logits.shape[1], 32)
    slots = 1 << (each - 1).bit_length()
    expression = f"{name}<{_C_TYPES[logits.dtype]}, {slots}>"
    return _found("route", expression, logits.device.type)


@route_operator.register_fake
def _(
    logits: torch.Tensor, k: int, of_chosen: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    wide = torch.promote_types(logits.dtype, torch.float32)
    tokens = logits.shape[0]
    return (
        logits.new_empty(tokens, k, dtype=wide),
        logits.new_empty(tokens, k, dtype=torch.int32),
    )


backward_operator.register_fake(
    lambda logits, weights, chosen, slopes, of_chosen: torch.empty_like(
        logits, memory_format=torch.contiguous_format
    )
)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    logits, _, ctx.of_chosen = inputs
    weights, chosen = output
    ctx.mark_non_differentiable(chosen)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(logits, weights, chosen)


def _gradient(
    ctx: Any, slopes: torch.Tensor | None, _: Any
) -> tuple[torch.Tensor | None, None, None]:
    if slopes is None:
        return None, None, None
    logits, weights, chosen = ctx.saved_tensors
    found = backward_operator(logits, weights, chosen, slopes, ctx.of_chosen)
    return found, None, None


route_operator.register_autograd(_gradient, setup_context=_keep)
