"""The weights of attention, softmax(scale * q k^T), written once and never read.

A program owns 64 queries and walks over the keys twice. The first walk keeps each
row's maximum and total; the second computes the scores again and stores weights.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernelwright.rows import load_rows


# fmt: off
# [exercise:attention_score]
@triton.jit
def tile_scores(q, k_ptr, cols, m, scale, D: tl.constexpr):
    """Return the scores of q's rows and keys `cols`; -inf from m on."""
    # [hole]
    k = load_rows(k_ptr, 0, cols, m, D)
    s = tl.dot(q, tl.trans(k)) * scale
    return tl.where(cols[None, :] < m, s, float("-inf"))
    # [/hole]


@triton.jit
def score_kernel(q_ptr, k_ptr, out_ptr, n, m, scale,
                 D: tl.constexpr, TILE: tl.constexpr):
    """Own TILE rows of the weights; walk over the keys twice."""
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    q = load_rows(q_ptr, 0, rows, n, D)
    # [hole]
    most = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    for first in tl.range(0, m, TILE):
        cols = first + tl.arange(0, TILE)
        s = tile_scores(q, k_ptr, cols, m, scale, D)
        new = tl.maximum(most, tl.max(s, 1))
        added = tl.sum(tl.exp(s - new[:, None]), 1)
        total = total * tl.exp(most - new) + added
        most = new
    for first in tl.range(0, m, TILE):
        cols = first + tl.arange(0, TILE)
        s = tile_scores(q, k_ptr, cols, m, scale, D)
        p = tl.exp(s - most[:, None]) / total[:, None]
        at = rows[:, None].to(tl.int64) * m + cols[None, :]
        inside = (rows[:, None] < n) & (cols[None, :] < m)
        tl.store(out_ptr + at, p.to(out_ptr.dtype.element_ty), mask=inside)
    # [/hole]


def attention_score(q, k, scale):
    """Return softmax(scale * q k^T), (n, m), for q (n, d) and k (m, d)."""
    (n, d), m = q.shape, k.shape[0]
    out = torch.empty((n, m), dtype=q.dtype, device=q.device)
    # [hole]
    if out.numel() > 0:
        score_kernel[(triton.cdiv(n, 64),)](q, k, out, n, m, scale,
                                            D=d, TILE=64)
    # [/hole]
    return out


# [/exercise]
