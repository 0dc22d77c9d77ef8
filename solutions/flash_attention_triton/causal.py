"""The second rung: no query looks ahead, and tiles that nobody sees are not read."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernelwright.rows import load_rows, store_rows
from solutions.flash_attention_triton.tiled import absorb, nothing


# fmt: off
# [exercise:flash_triton_causal]
@triton.jit
def causal_kernel(q_ptr, k_ptr, v_ptr, out_ptr, n, scale,
                  D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
                  lse_ptr=None):
    """Own ROWS queries of one head; query i sees the keys j <= i."""
    head = tl.program_id(1) * n
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    q = load_rows(q_ptr, head, rows, n, D)
    most, total, acc = nothing(ROWS, D)
    # [hole]
    stop = tl.minimum(n, (tl.program_id(0) + 1) * ROWS)
    # [/hole]
    for first in tl.range(0, stop, COLS):
        cols = first + tl.arange(0, COLS)
        k = load_rows(k_ptr, head, cols, n, D)
        v = load_rows(v_ptr, head, cols, n, D)
        # [hole]
        seen = cols[None, :] <= rows[:, None]
        # [/hole]
        most, total, acc = absorb(q, k, v, seen, scale, most, total, acc)
    store_rows(out_ptr, head, rows, n, acc / total[:, None], D)
    if lse_ptr is not None:  # for training: rung 4
        lse = most + tl.log(total)
        tl.store(lse_ptr + head + rows, lse, mask=rows < n)


def flash_triton_causal(q, k, v):
    """Attend causally; contiguous (batch, heads, n, head_dim), 16 bits."""
    batch, heads, n, d = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(n, 64), batch * heads)
    causal_kernel[grid](q, k, v, out, n, d**-0.5, D=d, ROWS=64, COLS=64)
    return out


# [/exercise]
