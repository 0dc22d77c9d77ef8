"""A product of ragged experts as torch's operator, with its gradient."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from kernelwright.operators import operator
from solutions.moe.grouped import (
    TALL,
    Segments,
    multiplied,
    tiles_of,
    wants_gaps,
    weights_gradient,
)
from solutions.moe.moves import moves_for


@operator("moe_grouped_gemm")
def grouped_operator(
    x: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor
) -> torch.Tensor:
    """Multiply each expert's rows by its matrix; zeros in rows of none.

    Args:
        x: (height, inner).
        weights: (experts, inner, columns).
        offsets: (experts), int32: where each expert's rows end.
    """
    segments = _segments(offsets)
    tiles = tiles_of(segments, x.shape[0], others_too=True)
    return multiplied(x.contiguous(), weights, segments, tiles)


@operator("moe_grouped_weights")
def weights_operator(
    x: torch.Tensor, grad: torch.Tensor, offsets: torch.Tensor
) -> torch.Tensor:
    """Return the weights' gradient, (experts, inner, columns)."""
    x, grad, segments = x.contiguous(), grad.contiguous(), _segments(offsets)
    if not wants_gaps(x, grad):
        return weights_gradient(x, grad, segments)
    # A step takes 64 rows: zeros between one expert's and the next one's.
    moves, experts = moves_for(x), offsets.shape[0]
    row = torch.arange(x.shape[0], dtype=torch.int32, device=x.device)
    whose = torch.searchsorted(offsets, row, right=True, out_int32=True)
    rows, begins, ends = moves.placed(whose[:, None], experts, TALL, x.shape[0])
    apart = Segments(begins, ends, TALL)
    height = x.shape[0] + experts * TALL
    a, b = (
        moves.sent(one, rows, None, *apart, height, whole=False) for one in (x, grad)
    )
    return weights_gradient(a, b, apart)


def _segments(offsets: torch.Tensor) -> Segments:
    begins = F.pad(offsets[:-1], (1, 0)) if offsets.shape[0] else offsets
    return Segments(begins, offsets, 1)


@grouped_operator.register_fake
def _(x: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[0], weights.shape[2])


@weights_operator.register_fake
def _(x: torch.Tensor, grad: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return x.new_empty(offsets.shape[0], x.shape[1], grad.shape[1])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, weights, offsets = ctx.saved_tensors
    of_x = of_weights = None
    if ctx.needs_input_grad[0]:
        of_x = grouped_operator(grad, weights.mT, offsets)
    if ctx.needs_input_grad[1]:
        of_weights = weights_operator(x, grad, offsets)
    return of_x, of_weights, None


grouped_operator.register_autograd(_gradient, setup_context=_keep)
