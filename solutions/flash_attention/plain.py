"""Attention with its matrix of scores, in plain torch: what stands in."""

from __future__ import annotations

import math

import torch

from solutions.flash_attention_triton import dropout_mask
from solutions.flash_attention_triton.options import Options


def attend_plain(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options
) -> torch.Tensor:
    """Attend with torch's own operations, in float32 (float64 for float64).

    Right for every option, differentiable by torch, and O(q_len kv_len) in memory: it
    stands in where no kernel runs.

    Args:
        q: (batch, heads, q_len, head_dim).
        k: (batch, kv_heads, kv_len, head_dim).
        v: as k.
        options: checked, as the kernels read them.

    Returns:
        q's shape and dtype; a row that sees nothing is zeros.

    Cost: 4 batch heads q_len kv_len head_dim FLOPs, and about 5 matrices of scores.
    """
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    groups = q.shape[1] // k.shape[1]
    keys, values = (t.to(wide).repeat_interleave(groups, dim=1) for t in (k, v))
    scores = q.to(wide) @ keys.mT * options.scale
    seen = visible(q, k, options)
    if options.mask is not None and options.mask.is_floating_point():
        scores = scores + options.mask.to(wide)
        seen = seen & (options.mask != -math.inf)
    scores = scores.masked_fill(~seen, -math.inf)
    # A row of nothing but -inf: softmax gives NaN, and so does its gradient.
    any_seen = seen.any(dim=-1, keepdim=True)
    weights = torch.softmax(torch.where(any_seen, scores, 0.0), dim=-1)
    weights = torch.where(any_seen, weights, 0.0)
    if options.dropout_p > 0.0:
        batch, heads, q_len, kv_len = weights.shape
        p, seed = options.dropout_p, options.seed
        keep = dropout_mask(batch, heads, q_len, kv_len, p, seed, device=q.device)
        weights = torch.where(keep, weights / (1.0 - options.dropout_p), 0.0)
    return (weights @ values).to(q.dtype)


def visible(q: torch.Tensor, k: torch.Tensor, options: Options) -> torch.Tensor:
    """Return bool (batch or 1, heads or 1, q_len, kv_len): which query sees which key.

    A floating mask is left to the caller: it is added, and -inf hides.
    """
    i = torch.arange(q.shape[2], device=q.device)[:, None]
    j = torch.arange(k.shape[2], device=q.device)
    seen = ((j >= i + options.first) & (j <= i + options.last))[None, None]
    if options.padding is not None:
        seen = seen & ~options.padding.bool()[:, None, None, :]
    if options.mask is not None and not options.mask.is_floating_point():
        seen = seen & options.mask.bool()
    return seen
