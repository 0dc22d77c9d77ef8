"""What comes before and after ``hopper_backward``'s one pass, in plain Triton.

Before: D = dO . O and the log-sum-exp of each row, put side by side for one TMA copy,
and zeros where dQ is summed and where turns are counted. After: the sum, in the order
in which wgmma leaves it, scaled and rounded to dQ. Both only move bytes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from solutions.flash_attention_triton.tiles import load_tile
from solutions.flash_attention_triton.visible import LOG2E

ROWS = tl.constexpr(64)


@triton.jit(do_not_specialize=("heads", "q_len"))
def prepare_kernel(
    out_ptr, grad_ptr, lse_ptr, stat_ptr, sum_ptr, turns_ptr,
    stride_gb, stride_gh, stride_gm, heads, q_len, D: tl.constexpr,
):  # fmt: skip
    """Own 64 queries: their lse in powers of 2, then their -D; zeros for their dQ.

    A row that sees nothing has an lse of -inf, and one past the end has none. Both get
    inf: their weights are exp(s - inf) = 0, and so is all that follows from them.
    """
    tiles = tl.cdiv(q_len, ROWS)
    pid = tl.program_id(0)
    plane, m0 = pid // tiles, (pid % tiles) * ROWS
    b, h = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    at, d = tl.arange(0, ROWS), tl.arange(0, D)
    place = plane.to(tl.int64) * q_len
    o = load_tile(out_ptr + place * D, m0, D, q_len, D, D, ROWS, True)
    g_head = grad_ptr + b * stride_gb + h * stride_gh
    g = load_tile(g_head, m0, stride_gm, q_len, D, D, ROWS, True)
    dot = tl.sum(o.to(tl.float32) * g.to(tl.float32), 1)
    inside = m0 + at < q_len
    lse = tl.load(lse_ptr + place + m0 + at, mask=inside, other=float("-inf"))
    lse = tl.where(lse == float("-inf"), float("inf"), lse * LOG2E)
    stats = stat_ptr + pid.to(tl.int64) * (2 * ROWS)
    tl.store(stats + at, lse)
    tl.store(stats + ROWS + at, -dot)
    sums = sum_ptr + pid.to(tl.int64) * (ROWS * D)
    tl.store(sums + at[:, None] * D + d[None, :], tl.zeros([ROWS, D], tl.float32))
    tl.store(turns_ptr + 1 + pid, 0)
    if pid == 0:
        tl.store(turns_ptr, 0)


@triton.jit(do_not_specialize=("q_len",))
def finish_kernel(sum_ptr, dq_ptr, q_len, scale, D: tl.constexpr):
    """Own 64 queries: put their sums in rows and columns; scale and round them.

    A place in a tile's sum is half of the columns, 8 of these, warp, 8 of its rows,
    thread of the row, upper or lower 8 rows of the warp, one of two columns.
    """
    tiles = tl.cdiv(q_len, ROWS)
    pid = tl.program_id(0)
    plane, m0 = pid // tiles, (pid % tiles) * ROWS
    dq = tl.load(sum_ptr + pid.to(tl.int64) * (ROWS * D) + tl.arange(0, ROWS * D))
    dq = tl.reshape(dq, [2, D // 16, 4, 8, 4, 2, 2])
    dq = tl.reshape(tl.permute(dq, [2, 5, 3, 0, 1, 4, 6]), [ROWS, D])
    at, d = tl.arange(0, ROWS)[:, None], tl.arange(0, D)[None, :]
    place = dq_ptr + (plane.to(tl.int64) * q_len + m0) * D + at * D + d
    dq = (dq * scale).to(dq_ptr.dtype.element_ty)
    tl.store(place, dq, mask=m0 + at < q_len)
