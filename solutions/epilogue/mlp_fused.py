"""Two linear layers and the GELU between them in one kernel, for narrow layers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


# fmt: off
# [exercise:mlp_fused]
@triton.jit
def mlp_kernel(x_ptr, w1_ptr, b1_ptr, w2_ptr, b2_ptr, out_ptr,
               rows, d, hidden, ROWS: tl.constexpr, D: tl.constexpr,
               TILE: tl.constexpr):
    """Own ROWS rows of x and out; walk over the hidden layer by TILE."""
    r = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    c = tl.arange(0, D)
    inside = (r[:, None] < rows) & (c[None, :] < d)
    at = r[:, None] * d + c[None, :]
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    acc = tl.zeros([ROWS, D], tl.float32)
    # [hole]
    for first in tl.range(0, hidden, TILE):
        h = first + tl.arange(0, TILE)
        seen = (h[None, :] < hidden) & (c[:, None] < d)
        w1 = tl.load(w1_ptr + h[None, :] * d + c[:, None],
                     mask=seen, other=0.0)
        b1 = tl.load(b1_ptr + h, mask=h < hidden, other=0.0)
        z = tl.dot(x, w1) + b1[None, :]
        a = 0.5 * z * (1 + tl.erf(z * 0.7071067811865476))
        seen = (h[:, None] < hidden) & (c[None, :] < d)
        w2 = tl.load(w2_ptr + c[None, :] * hidden + h[:, None],
                     mask=seen, other=0.0)
        acc = tl.dot(a.to(w2.dtype), w2, acc)
    b2 = tl.load(b2_ptr + c, mask=c < d, other=0.0)
    acc += b2[None, :]
    # [/hole]
    tl.store(out_ptr + at, acc.to(x.dtype), mask=inside)


def mlp_fused(x, w1, b1, w2, b2):
    """Return gelu(x w1ᵀ + b1) w2ᵀ + b2 for x of (rows, d), d <= 128."""
    rows, d = x.shape
    hidden = w1.shape[0]
    out = torch.empty_like(x)
    wide = max(16, triton.next_power_of_2(d))
    mlp_kernel[(triton.cdiv(rows, 64),)](
        x, w1, b1, w2, b2, out, rows, d, hidden, ROWS=64, D=wide, TILE=64)
    return out


# [/exercise]
