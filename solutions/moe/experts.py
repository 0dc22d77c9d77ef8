"""All experts at once, from tokens to tokens: torch's operators and their gradients.

    out[t] = sum over j of weights[t][j] expert chosen[t][j] of x[t]
    expert e of x = down[e] (silu(gate[e] x) * (up[e] x))

Forward: place, send, a product with gates, a product, gather. For the way back only
what went into the activation is kept; what was sent is sent again. The weights' own
gradient needs no result of the last product: with u = downᵀ of the token's gradient,

    of_weights[t][j] = grad[t] · down h = h · u
"""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.operators import operator
from solutions.moe.grouped import (
    TALL,
    Segments,
    gated,
    multiplied,
    tiles_of,
    weights_gradient,
)
from solutions.moe.moves import moves_for

Tensors = tuple[torch.Tensor, ...]


def height_for(pairs: int, experts: int) -> int:
    """Return how many rows there is room for, however tokens are distributed."""
    whole = (pairs + TALL - 1) // TALL * TALL
    return whole + min(pairs, experts) * TALL


@operator("moe_experts")
def experts_operator(
    x: torch.Tensor,
    weights: torch.Tensor,
    chosen: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    capacity: int,
    keep: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Send tokens to experts, and sum up what comes back.

    Args:
        x: (tokens, d_model).
        weights: (tokens, k), fp32, or fp64 for fp64.
        chosen: (tokens, k), int32.
        gate_up: (experts, 2 d_ff, d_model).
        down: (experts, d_model, d_ff).
        capacity: the most tokens of an expert.
        keep: return what the way back needs.

    Returns:
        (tokens, d_model); and what is kept, or nothing: gates and what they let
        through, each pair's row, and where experts' rows begin and end.
    """
    x, weights = x.contiguous(), weights.contiguous()
    gate_up, down = gate_up.contiguous(), down.contiguous()
    experts = gate_up.shape[0]
    moves = moves_for(x)
    if not x.numel() or not chosen.numel() or not experts:
        nothing = [chosen.new_zeros(n if keep else 0) for n in (0, experts, experts)]
        kept = x.new_empty(0, gate_up.shape[1]) if keep else x.new_empty(0)
        rows, begins, ends = nothing
        rows = rows.view(chosen.shape) if keep and not chosen.numel() else rows
        return torch.zeros_like(x), kept, rows, begins, ends
    rows, begins, ends = moves.placed(chosen.contiguous(), experts, TALL, capacity)
    segments = Segments(begins, ends, TALL)
    height = height_for(chosen.numel(), experts)
    tiles = tiles_of(segments, height)
    moved = moves.sent(x, rows, None, *segments, height, whole=False)
    found = gated(moved, gate_up.mT, tiles, keep=keep)
    if found is None:
        both = multiplied(moved, gate_up.mT, segments, tiles)
        found = moves.swiglu(both), both
    hidden, kept = found
    y = multiplied(hidden, down.mT, segments, tiles)
    out = moves.gathered(y, rows, weights)
    if not keep:
        rows, begins, ends = (chosen.new_empty(0) for _ in range(3))
    kept = kept if keep and kept is not None else x.new_empty(0)
    return out, kept, rows, begins, ends


@experts_operator.register_fake
def _(
    x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor,
    gate_up: torch.Tensor, down: torch.Tensor, capacity: int, keep: bool,
) -> Tensors:  # fmt: skip
    experts = gate_up.shape[0]
    height = height_for(chosen.numel(), experts)
    return (
        x.new_empty(x.shape),
        x.new_empty((height, gate_up.shape[1]) if keep else 0),
        chosen.new_empty(chosen.shape if keep else 0),
        *(chosen.new_empty(experts if keep else 0) for _ in range(2)),
    )


@operator("moe_experts_backward")
def backward_operator(
    grad: torch.Tensor,
    x: torch.Tensor,
    weights: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    both: torch.Tensor,
    rows: torch.Tensor,
    begins: torch.Tensor,
    ends: torch.Tensor,
    of_weight: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Go the way back.

    Args:
        grad: (tokens, d_model).
        x: as for ``experts_operator``; so are weights, gate_up and down.
        weights: see x.
        gate_up: see x.
        down: see x.
        both: what was kept.
        rows: each pair's row.
        begins: where experts' rows begin.
        ends: where they end.
        of_weight: whether the matrices' gradients are wanted.

    Returns:
        The gradients of x, weights, gate_up and down; of these nothing, if not wanted.
    """
    grad, x, weights = grad.contiguous(), x.contiguous(), weights.contiguous()
    gate_up, down = gate_up.contiguous(), down.contiguous()
    moves = moves_for(x)
    segments, height = Segments(begins, ends, TALL), both.shape[0]
    tiles = tiles_of(segments, height)
    slopes = moves.sent(grad, rows, None, *segments, height, whole=False)
    of_hidden = multiplied(slopes, down, segments, tiles)
    of_both, hidden, of_weights = moves.swiglu_backward(
        both, of_hidden, rows, weights, *segments
    )
    moved = multiplied(of_both, gate_up, segments, tiles)
    of_x = moves.gathered(moved, rows, None)
    if not of_weight:
        return of_x, of_weights, x.new_empty(0), x.new_empty(0)
    of_down = weights_gradient(slopes, hidden, segments)
    again = moves.sent(x, rows, None, *segments, height, whole=False)
    return of_x, of_weights, weights_gradient(of_both, again, segments), of_down


@backward_operator.register_fake
def _(
    grad: torch.Tensor, x: torch.Tensor, weights: torch.Tensor, gate_up: torch.Tensor,
    down: torch.Tensor, both: torch.Tensor, rows: torch.Tensor, begins: torch.Tensor,
    ends: torch.Tensor, of_weight: bool,
) -> Tensors:  # fmt: skip
    return (
        x.new_empty(x.shape),
        weights.new_empty(weights.shape),
        *(one.new_empty(one.shape if of_weight else 0) for one in (gate_up, down)),
    )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weights, _, gate_up, down, _, _ = inputs
    kept = output[1:]
    ctx.mark_non_differentiable(*kept)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, weights, gate_up, down, *kept)


def _gradient(
    ctx: Any, grad: torch.Tensor | None, *_: Any
) -> tuple[torch.Tensor | None, ...]:
    none = (None,) * len(ctx.needs_input_grad)
    if grad is None:
        return none
    needs = ctx.needs_input_grad
    of_x, of_weights, of_gate_up, of_down = backward_operator(
        grad, *ctx.saved_tensors, needs[3] or needs[4]
    )
    found = of_x, of_weights, None, of_gate_up, of_down, None, None
    return tuple(one if need else None for one, need in zip(found, needs, strict=True))


experts_operator.register_autograd(_gradient, setup_context=_keep)
