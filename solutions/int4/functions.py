"""A linear layer whose weight is packed: what it takes is checked, gradients flow."""

from __future__ import annotations

import math

import torch

from kernelwright.operators import autocast, recorded
from solutions.int4.layout import Packed
from solutions.int4.product import linear_operator

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def linear(
    x: torch.Tensor, packed: Packed, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Multiply by a weight of four bits: ``x weightᵀ + bias``.

        out[..., i] = sum over j of x[..., j] (codes[i, j] - zeros[i, g]) scales[i, g]

    Args:
        x: (..., columns); fp16, bf16, fp32 or fp64.
        packed: what ``pack`` returned, on x's device.
        bias: (rows), of x's dtype.

    Returns:
        (..., rows), of x's dtype, contiguous. Gradients flow to x and bias; the weight
        is fixed.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: half a byte for each number of the weight, up to 256 tokens of 16 bits on a
    GPU; summed in fp32. For more tokens, for fp32 and fp64, and for groups that are no
    multiples of 16, the weight is restored in x's dtype first, and multiplied by torch.
    """
    x, bias = autocast(x, bias)
    words, scales, zeros, rows, columns, group_size = packed
    return _linear(x, words, scales, zeros, bias, rows, columns, group_size)


@recorded
def _linear(
    x: torch.Tensor,
    words: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor,
    bias: torch.Tensor | None,
    rows: int,
    columns: int,
    group_size: int,
) -> torch.Tensor:
    _check(x, words, bias, rows, columns)
    flat = x.reshape(math.prod(x.shape[:-1]), columns)
    out = linear_operator(flat, words, scales, zeros, bias, rows, columns, group_size)
    found: torch.Tensor = out.view(*x.shape[:-1], rows)
    return found


def _check(
    x: torch.Tensor,
    words: torch.Tensor,
    bias: torch.Tensor | None,
    rows: int,
    columns: int,
) -> None:
    """Validate once, at the boundary: kernels do not."""
    if not isinstance(x, torch.Tensor) or x.dtype not in _DTYPES:
        got = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
        raise TypeError(
            f"linear: x is {got}; wanted a tensor of float16, bfloat16, float32 or "
            "float64."
        )
    if x.device != words.device:
        raise ValueError(
            f"linear: x is on {x.device}, the weight on {words.device}; wanted the "
            f"same: packed.to({str(x.device)!r})."
        )
    if x.dim() < 1 or x.shape[-1] != columns:
        raise ValueError(
            f"linear: x has shape {tuple(x.shape)}; wanted (..., {columns}), a number "
            "for each of the weight's columns."
        )
    if bias is None:
        return
    if tuple(bias.shape) != (rows,) or bias.dtype != x.dtype or bias.device != x.device:
        raise ValueError(
            f"linear: bias is {bias.dtype} of shape {tuple(bias.shape)} on "
            f"{bias.device}; wanted {x.dtype}, ({rows},), on {x.device}."
        )
