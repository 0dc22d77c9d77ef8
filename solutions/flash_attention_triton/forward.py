"""Attention forward for every option: one Triton kernel, tiles of queries.

    out[i] = sum_j softmax_j(scale * q[i] . k[j] + mask[i, j]) v[j]
    lse[i] = log sum_j exp(scale * q[i] . k[j] + mask[i, j])

A program owns BLOCK_M queries of one head and walks over the keys that any of them
sees. The walk has three parts: keys that some queries see and some do not, keys that
all see (no comparison there), and again keys that some see.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernelwright.operators import held
from solutions.flash_attention_triton.options import Options
from solutions.flash_attention_triton.tiles import (
    Tiles,
    block_of,
    keys_seen,
    load_tile,
    optional,
)
from solutions.flash_attention_triton.visible import LN2, LOG2E, hide, kept


@triton.jit
def _walk(
    state, q, keys, values, start, stop, rows, bounds, masks, draw, scale_log2,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
    EDGE: tl.constexpr, MASK: tl.constexpr, FLOATING: tl.constexpr,
    PADDING: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Take keys start to stop into the running sum; EDGE: not all are seen by all.

    state: the sum, its denominator and the maximum; keys, values: a head of them, and
    how far apart they lie; bounds and masks as ``hide`` has them, draw as ``kept``.
    """
    acc, denom, m = state
    k_head, stride_kn = keys
    v_head, stride_vn = values
    kv_len = bounds[1]
    for n0 in tl.range(start, stop, BLOCK_N):
        n0 = tl.multiple_of(n0, BLOCK_N)
        cols = n0 + tl.arange(0, BLOCK_N)
        k = load_tile(k_head, n0, stride_kn, kv_len, D, BLOCK_D, BLOCK_N, EDGE, True)
        s = tl.dot(q, k, input_precision=PRECISION) * scale_log2
        s = hide(
            s, rows[:, None], cols[None, :], bounds, masks, EDGE, MASK, FLOATING,
            PADDING,
        )  # fmt: skip
        m_new = tl.maximum(m, tl.max(s, 1))
        # Where nothing was seen yet, exp2(-inf - 0) is 0 and not NaN.
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(s - m_safe[:, None])
        alpha = tl.exp2(m - m_safe)
        denom = denom * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        if DROPOUT:  # after the sum: the weights that are left are not renormalised
            p = tl.where(kept(draw, rows[:, None], cols[None, :]), p, 0.0)
        v = load_tile(v_head, n0, stride_vn, kv_len, D, BLOCK_D, BLOCK_N, EDGE)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision=PRECISION)
        m = m_new
    return acc, denom, m


@triton.jit(do_not_specialize=["seed"])
def _forward_kernel(
    q_ptr, k_ptr, v_ptr, mask_ptr, padding_ptr, out_ptr, lse_ptr,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_mb, stride_mh, stride_mm, stride_mn,
    heads, group, q_len, kv_len, first, last, scale_log2, p_drop, seed,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BOUNDED_LEFT: tl.constexpr, BOUNDED_RIGHT: tl.constexpr,
    MASK: tl.constexpr, FLOATING: tl.constexpr, PADDING: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(q_len, BLOCK_M)
    pid = tl.program_id(0)
    # The last tile first: under a causal mask it has the most to do.
    m0 = (tiles - 1 - pid % tiles) * BLOCK_M
    plane = pid // tiles
    b, h = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    q_head = q_ptr + b * stride_qb + h * stride_qh
    k_head = k_ptr + b * stride_kb + (h // group) * stride_kh
    v_head = v_ptr + b * stride_vb + (h // group) * stride_vh
    mask_head = mask_ptr + b * stride_mb + h * stride_mh
    keys, values = (k_head, stride_kn), (v_head, stride_vn)
    bounds = (q_len, kv_len, first, last)
    masks = (mask_head, padding_ptr + b * kv_len, stride_mm, stride_mn)
    draw = (seed, plane, p_drop)

    at, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    rows = m0 + at
    inside = (rows[:, None] < q_len) & (d[None, :] < D)
    q = load_tile(q_head, m0, stride_qm, q_len, D, BLOCK_D, BLOCK_M, True)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    denom = tl.zeros([BLOCK_M], tl.float32)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)

    start, full, part, stop = keys_seen(
        m0, q_len, kv_len, first, last, BLOCK_M, BLOCK_N, BOUNDED_LEFT, BOUNDED_RIGHT
    )
    if BOUNDED_LEFT:
        acc, denom, m = _walk(
            (acc, denom, m), q, keys, values, start, full, rows, bounds, masks, draw,
            scale_log2, D, BLOCK_D, BLOCK_N, True, MASK, FLOATING, PADDING, DROPOUT,
            PRECISION,
        )  # fmt: skip
    acc, denom, m = _walk(
        (acc, denom, m), q, keys, values, full, part, rows, bounds, masks, draw,
        scale_log2, D, BLOCK_D, BLOCK_N, False, MASK, FLOATING, PADDING, DROPOUT,
        PRECISION,
    )  # fmt: skip
    acc, denom, m = _walk(
        (acc, denom, m), q, keys, values, part, stop, rows, bounds, masks, draw,
        scale_log2, D, BLOCK_D, BLOCK_N, True, MASK, FLOATING, PADDING, DROPOUT,
        PRECISION,
    )  # fmt: skip

    # A row that saw nothing has denom = 0 and acc = 0: its output is 0.
    share = tl.where(denom == 0.0, 1.0, denom)
    out = acc * (1.0 / (share * (1.0 - p_drop)))[:, None]
    place = plane.to(tl.int64) * q_len + m0
    out_at = out_ptr + place * D + at[:, None] * D + d[None, :]
    tl.store(out_at, out.to(out_ptr.dtype.element_ty), mask=inside)
    lse = tl.where(denom == 0.0, float("-inf"), (m + tl.log2(share)) * LN2)
    tl.store(lse_ptr + place + at, lse, mask=rows < q_len)


def forward_triton(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options,
    tiles: Tiles | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Launch the kernel; q, k and v are checked, with a last stride of 1.

    Cost: 4 * batch * heads * q_len * kv_len * head_dim FLOPs (half under a causal
    mask), q, k, v and out moved once; no memory beside out and lse.
    """
    batch, heads, q_len, head_dim = q.shape
    kv_len = k.shape[2]
    out = torch.empty((batch, heads, q_len, head_dim), dtype=q.dtype, device=q.device)
    lse = torch.empty((batch, heads, q_len), dtype=torch.float32, device=q.device)
    if not out.numel():
        return out, lse
    cut = tiles or forward_tiles(q, options)
    mask, padding, told = optional(q, options)
    grid = (triton.cdiv(q_len, cut.m) * batch * heads,)
    held(_forward_kernel)[grid](
        q, k, v, mask, padding, out, lse,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *mask.stride(),
        heads, heads // k.shape[1], q_len, kv_len,
        scale_log2=options.scale * LOG2E.value, BLOCK_M=cut.m, BLOCK_N=cut.n,
        num_warps=cut.warps, num_stages=cut.stages, **told,
    )  # fmt: skip
    return out, lse


def forward_tiles(q: torch.Tensor, options: Options) -> Tiles:
    """Choose the tiles that were fastest on an H200 (benchmarks, sweep)."""
    width = block_of(q.shape[3])
    if q.device.type == "cpu":  # the interpreter's cost is operations, not arithmetic
        return Tiles(64, 64, 4, 1)
    if q.dtype == torch.float32:
        return Tiles(64, 32, 4, 2) if width <= 64 else Tiles(32, 32, 4, 1)
    if options.dropout_p > 0 or options.mask is not None:
        return Tiles(64, 64, 4, 2) if width <= 128 else Tiles(64, 32, 4, 2)
    if width <= 64:
        return Tiles(128, 64, 8, 3)
    if width <= 128:
        return Tiles(128, 128, 8, 3)
    return Tiles(128, 64, 8, 2)
