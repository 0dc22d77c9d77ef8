"""The first rung: one program owns 64 queries and walks over all keys of its head."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernelwright.rows import load_rows, store_rows


# fmt: off
# [exercise:absorb_tile]
@triton.jit
def nothing(ROWS: tl.constexpr, D: tl.constexpr):
    """Return the running softmax of ROWS queries that saw no key yet."""
    most = tl.full([ROWS], float("-inf"), tl.float32)
    return most, tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, D], tl.float32)


@triton.jit
def absorb(q, k, v, seen, scale, most, total, acc):
    """Take a tile of keys into the running softmax of a tile of queries.

    q (ROWS, D); k, v (COLS, D); seen (ROWS, COLS): which key a query sees.
    most, total (ROWS,), acc (ROWS, D): fp32, so far; returned anew.
    """
    # [hole]
    s = tl.where(seen, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    new = tl.maximum(most, tl.max(s, 1))
    p = tl.exp(s - new[:, None])
    shrink = tl.exp(most - new)
    total = total * shrink + tl.sum(p, 1)
    acc = acc * shrink[:, None] + tl.dot(p.to(v.dtype), v)
    most = new
    # [/hole]
    return most, total, acc


# [/exercise]


# [exercise:flash_triton]
@triton.jit
def flash_kernel(q_ptr, k_ptr, v_ptr, out_ptr, n, scale,
                 D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Own ROWS queries of one head; walk over its keys, COLS at a time."""
    head = tl.program_id(1) * n
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    q = load_rows(q_ptr, head, rows, n, D)
    most, total, acc = nothing(ROWS, D)
    # [hole]
    for first in tl.range(0, n, COLS):
        cols = first + tl.arange(0, COLS)
        k = load_rows(k_ptr, head, cols, n, D)
        v = load_rows(v_ptr, head, cols, n, D)
        seen = (rows[:, None] >= 0) & (cols[None, :] < n)
        most, total, acc = absorb(q, k, v, seen, scale, most, total, acc)
    # [/hole]
    store_rows(out_ptr, head, rows, n, acc / total[:, None], D)


def flash_triton(q, k, v):
    """Attend; all contiguous (batch, heads, n, head_dim), 16 bits."""
    batch, heads, n, d = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(n, 64), batch * heads)
    flash_kernel[grid](q, k, v, out, n, d**-0.5, D=d, ROWS=64, COLS=64)
    return out


# [/exercise]
