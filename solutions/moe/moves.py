"""Rows on their way to experts and back: torch's operators, and where they run."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from kernelwright.operators import operator
from solutions.moe import on_cpu, permutation


def moves_for(x: torch.Tensor) -> ModuleType:
    """Return the module that moves rows where x is."""
    return permutation if x.device.type == "cuda" else on_cpu


@operator("moe_place")
def place_operator(
    chosen: torch.Tensor, experts: int, capacity: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sort pairs by expert, without gaps; see ``permutation.placed``."""
    found = moves_for(chosen).placed(chosen.contiguous(), experts, 1, capacity)
    rows, begins, ends = found
    return rows, begins, ends


@place_operator.register_fake
def _(
    chosen: torch.Tensor, experts: int, capacity: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        torch.empty_like(chosen, memory_format=torch.contiguous_format),
        chosen.new_empty(experts),
        chosen.new_empty(experts),
    )


@operator("moe_send")
def send_operator(
    x: torch.Tensor,
    rows: torch.Tensor,
    weights: torch.Tensor | None,
    begins: torch.Tensor | None,
    ends: torch.Tensor | None,
    height: int,
) -> torch.Tensor:
    """Copy each token's numbers to its rows; see ``permutation.sent``."""
    x = x.contiguous()
    weights = None if weights is None else weights.contiguous()
    found: torch.Tensor = moves_for(x).sent(
        x, rows, weights, begins, ends, 1, height, whole=True
    )
    return found


@send_operator.register_fake
def _(
    x: torch.Tensor, rows: Any, weights: Any, begins: Any, ends: Any, height: int
) -> torch.Tensor:
    return x.new_empty(height, x.shape[1])


@operator("moe_gather")
def gather_operator(
    y: torch.Tensor,
    rows: torch.Tensor,
    weights: torch.Tensor | None,
) -> torch.Tensor:
    """Sum each token's rows, weighed; see ``permutation.gathered``."""
    weights = None if weights is None else weights.contiguous()
    found: torch.Tensor = moves_for(y).gathered(y.contiguous(), rows, weights)
    return found


@gather_operator.register_fake
def _(y: torch.Tensor, rows: torch.Tensor, weights: Any) -> torch.Tensor:
    return y.new_empty(rows.shape[0], y.shape[1])


@operator("moe_weigh")
def weigh_operator(
    grad: torch.Tensor, y: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    """Multiply each token's gradient by each of its rows."""
    found: torch.Tensor = moves_for(y).weighed(grad.contiguous(), y.contiguous(), rows)
    return found


@weigh_operator.register_fake
def _(grad: torch.Tensor, y: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    wide = torch.promote_types(grad.dtype, torch.float32)
    return grad.new_empty(rows.shape, dtype=wide)


def _keep_sent(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(inputs[1])


def _gradient_of_sent(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    found = gather_operator(grad, ctx.saved_tensors[0], None)
    return found, None, None, None, None, None


def _keep_gathered(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.height = inputs[0].shape[0]
    ctx.save_for_backward(*inputs)


def _gradient_of_gathered(
    ctx: Any, grad: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    y, rows, weights = ctx.saved_tensors
    of_y = of_weights = None
    if ctx.needs_input_grad[0]:
        of_y = send_operator(grad, rows, weights, None, None, ctx.height)
    if ctx.needs_input_grad[2]:
        of_weights = weigh_operator(grad, y, rows)
    return of_y, None, of_weights


send_operator.register_autograd(_gradient_of_sent, setup_context=_keep_sent)
gather_operator.register_autograd(_gradient_of_gathered, setup_context=_keep_gathered)
