"""Standard attention, and attention a tile of keys at a time, in plain PyTorch."""

from __future__ import annotations

import math

import torch

Tensor = torch.Tensor


# [exercise:attention_reference]
def attention_reference(q: Tensor, k: Tensor, v: Tensor, seen: Tensor):
    """Attend with all scores in memory; seen[i, j]: i sees key j."""
    # [hole]
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~seen, -math.inf)
    weights = torch.softmax(scores, dim=-1)
    weights = torch.where(seen.any(dim=-1, keepdim=True), weights, 0.0)
    return weights @ v
    # [/hole]


# [/exercise]


# [exercise:attention_tile]
def attention_tile(q: Tensor, k: Tensor, v: Tensor, tile: int) -> Tensor:
    """Attend without the matrix of scores: `tile` keys at a time."""
    # Of each query: the maximum, the sum of the weights, and of the
    # weighted values.
    top = torch.full_like(q[..., :1], -math.inf)
    weight, total = torch.zeros_like(top), torch.zeros_like(q)
    for start in range(0, k.shape[-2], tile):
        keys = k[..., start : start + tile, :]
        values = v[..., start : start + tile, :]
        # [hole]
        scores = q @ keys.mT / math.sqrt(q.shape[-1])
        higher = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
        mend = torch.exp(top - higher)
        weights = torch.exp(scores - higher)
        weight = weight * mend + weights.sum(dim=-1, keepdim=True)
        total = total * mend + weights @ values
        top = higher
        # [/hole]
    return total / weight


# [/exercise]
