"""Gating in Triton: a program a token finds its k experts, one maximum at a time."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


# fmt: off
# [exercise:topk_gating]
@triton.jit
def topk_kernel(logits_ptr, weights_ptr, experts_ptr, experts, k,
                BLOCK: tl.constexpr, SLOTS: tl.constexpr):
    """Own one token: `experts` <= BLOCK logits, `k` <= SLOTS results."""
    row = tl.program_id(0).to(tl.int64)
    # [hole]
    e = tl.arange(0, BLOCK)
    slot = tl.arange(0, SLOTS)
    left = e < experts  # who can still be chosen
    x = tl.load(logits_ptr + row * experts + e, mask=left)
    value = tl.full((SLOTS,), float("-inf"), tl.float32)
    chosen = tl.zeros((SLOTS,), tl.int32)
    for j in range(k):
        most = tl.max(tl.where(left, x, float("-inf")), 0)
        first = tl.min(tl.where(left & (x == most), e, BLOCK), 0)
        left = left & (e != first)
        value = tl.where(slot == j, most, value)
        chosen = tl.where(slot == j, first, chosen)
    share = tl.exp(value - tl.max(value, 0))
    weight = share / tl.sum(share, 0)
    tl.store(weights_ptr + row * k + slot, weight, mask=slot < k)
    tl.store(experts_ptr + row * k + slot, chosen, mask=slot < k)
    # [/hole]


def topk_gating(logits, k):
    """Return weights, fp32, and experts, int32: both (tokens, k)."""
    tokens, experts = logits.shape
    weights = torch.empty(tokens, k, device=logits.device)
    chosen = torch.empty(tokens, k, dtype=torch.int32,
                         device=logits.device)
    # [hole]
    if tokens > 0:
        topk_kernel[(tokens,)](logits, weights, chosen, experts, k,
                               BLOCK=triton.next_power_of_2(experts),
                               SLOTS=triton.next_power_of_2(k),
                               num_warps=1)
    # [/hole]
    return weights, chosen


# [/exercise]
