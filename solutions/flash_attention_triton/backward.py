"""Attention backward for every option: dK and dV by key tiles, dQ by query tiles.

Nothing of size q_len * kv_len was kept. With the log-sum-exp of each row the weights
come back from one product, no second softmax needed:

    P  = exp(scale * Q K^T + mask - lse)        dV = P^T dO
    dP = dO V^T                                 dS = P * (dP - D),  D_i = dO_i . O_i
    dQ = scale * dS K                           dK = scale * dS^T Q

A key's gradient sums over queries and a query's over keys. One kernel owns a tile of
keys and walks over the queries, another the other way round, so that nobody adds to
what another program writes: no atomics, and the same bits in every run. The price is
that S and dP are computed twice: seven products where five would do, as they do in
``hopper_backward.py``, for fewer options and one chip.
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
from solutions.flash_attention_triton.visible import LOG2E, hide, kept


@triton.jit
def _dot_rows_kernel(
    out_ptr, grad_ptr, dot_ptr, stride_gb, stride_gh, stride_gm, heads, q_len,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Compute D_i = dO_i . O_i: what the softmax's normalisation takes from dP."""
    tiles = tl.cdiv(q_len, BLOCK_M)
    plane, m0 = tl.program_id(0) // tiles, (tl.program_id(0) % tiles) * BLOCK_M
    b, h = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    at = tl.arange(0, BLOCK_M)
    place = plane.to(tl.int64) * q_len + m0
    o_head = out_ptr + plane.to(tl.int64) * q_len * D
    g_head = grad_ptr + b * stride_gb + h * stride_gh
    o = load_tile(o_head, m0, D, q_len, D, BLOCK_D, BLOCK_M, True)
    g = load_tile(g_head, m0, stride_gm, q_len, D, BLOCK_D, BLOCK_M, True)
    dot = tl.sum(o.to(tl.float32) * g.to(tl.float32), 1)
    tl.store(dot_ptr + place + at, dot, mask=m0 + at < q_len)


@triton.jit
def _walk_queries(
    sums, k, v, queries, grads, sides, start, stop, cols, bounds, masks, draw,
    scale_log2, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    EDGE: tl.constexpr, MASK: tl.constexpr, FLOATING: tl.constexpr,
    PADDING: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add what queries start to stop give to one tile of keys; all is transposed.

    sums: dK and dV; queries, grads: a head of them, and how far apart they lie; sides:
    log-sum-exp and D_i of each; the rest as ``hide`` and ``kept`` have it.
    """
    dk, dv = sums
    q_head, stride_qm = queries
    g_head, stride_gm = grads
    lse_row, dot_row = sides
    q_len = bounds[0]
    for m0 in tl.range(start, stop, BLOCK_M):
        m0 = tl.multiple_of(m0, BLOCK_M)
        rows = m0 + tl.arange(0, BLOCK_M)
        q = load_tile(q_head, m0, stride_qm, q_len, D, BLOCK_D, BLOCK_M, EDGE)
        g = load_tile(g_head, m0, stride_gm, q_len, D, BLOCK_D, BLOCK_M, EDGE)
        if EDGE or D != BLOCK_D:
            lse = tl.load(lse_row + rows, mask=rows < q_len, other=float("-inf"))
            dot = tl.load(dot_row + rows, mask=rows < q_len, other=0.0)
        else:
            lse = tl.load(lse_row + rows)
            dot = tl.load(dot_row + rows)
        s = tl.dot(k, tl.trans(q), input_precision=PRECISION) * scale_log2
        s = hide(
            s, rows[None, :], cols[:, None], bounds, masks, EDGE, MASK, FLOATING,
            PADDING, True,
        )  # fmt: skip
        # A row that sees nothing has lse = -inf, and -inf - -inf is NaN.
        lse = tl.where(lse == float("-inf"), 0.0, lse) * LOG2E
        p = tl.exp2(s - lse[None, :])
        dp = tl.dot(v, tl.trans(g), input_precision=PRECISION)
        if DROPOUT:
            keep = kept(draw, rows[None, :], cols[:, None])
            share = tl.where(keep, 1.0 / (1.0 - draw[2]), 0.0)
            dv = tl.dot((p * share).to(g.dtype), g, dv, input_precision=PRECISION)
            dp = dp * share
        else:
            dv = tl.dot(p.to(g.dtype), g, dv, input_precision=PRECISION)
        ds = p * (dp - dot[None, :])
        dk = tl.dot(ds.to(q.dtype), q, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=["seed"])
def _keys_kernel(
    q_ptr, k_ptr, v_ptr, mask_ptr, padding_ptr, grad_ptr, lse_ptr, dot_ptr,
    dk_ptr, dv_ptr,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_gb, stride_gh, stride_gm,
    stride_mb, stride_mh, stride_mm, stride_mn,
    heads, group, q_len, kv_len, first, last, scale, scale_log2, p_drop, seed,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BOUNDED_LEFT: tl.constexpr, BOUNDED_RIGHT: tl.constexpr,
    MASK: tl.constexpr, FLOATING: tl.constexpr, PADDING: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Own a tile of keys: dK and dV, over all queries and all heads of the group."""
    tiles = tl.cdiv(kv_len, BLOCK_N)
    pid = tl.program_id(0)
    n0 = (pid % tiles) * BLOCK_N
    kv_plane = pid // tiles
    kv_heads = heads // group
    b, kv_h = kv_plane // kv_heads, kv_plane % kv_heads
    b64, kv64 = b.to(tl.int64), kv_h.to(tl.int64)
    at, d = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    cols = n0 + at
    inside = (cols[:, None] < kv_len) & (d[None, :] < D)
    k_head = k_ptr + b64 * stride_kb + kv64 * stride_kh
    v_head = v_ptr + b64 * stride_vb + kv64 * stride_vh
    k = load_tile(k_head, n0, stride_kn, kv_len, D, BLOCK_D, BLOCK_N, True)
    v = load_tile(v_head, n0, stride_vn, kv_len, D, BLOCK_D, BLOCK_N, True)
    dk = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)

    # Queries that see some key of this tile; the first and last of them, in whole
    # tiles of queries, where some do not see all.
    start, stop, full, part = 0, q_len, 0, q_len // BLOCK_M * BLOCK_M
    last_col = tl.minimum(n0 + BLOCK_N, kv_len) - 1
    if BOUNDED_RIGHT:  # j <= i + last
        start = tl.maximum(0, n0 - last) // BLOCK_M * BLOCK_M
        full = tl.cdiv(tl.maximum(0, last_col - last), BLOCK_M) * BLOCK_M
    if BOUNDED_LEFT:  # i + first <= j
        stop = tl.minimum(stop, tl.maximum(0, last_col - first + 1))
        part = tl.minimum(part, tl.maximum(0, n0 - first + 1) // BLOCK_M * BLOCK_M)
    full = tl.minimum(full, stop)
    part = tl.maximum(part, full)
    if n0 + BLOCK_N > kv_len:  # a ragged tile of keys: every step is an edge
        part = full

    bounds = (q_len, kv_len, first, last)
    padding_row = padding_ptr + b64 * kv_len
    for g in range(group):
        h = kv_h * group + g
        plane = b * heads + h
        h64, plane64 = h.to(tl.int64), plane.to(tl.int64)
        queries = (q_ptr + b64 * stride_qb + h64 * stride_qh, stride_qm)
        grads = (grad_ptr + b64 * stride_gb + h64 * stride_gh, stride_gm)
        mask_head = mask_ptr + b64 * stride_mb + h64 * stride_mh
        masks = (mask_head, padding_row, stride_mm, stride_mn)
        sides = (lse_ptr + plane64 * q_len, dot_ptr + plane64 * q_len)
        draw = (seed, plane, p_drop)
        if BOUNDED_RIGHT:
            dk, dv = _walk_queries(
                (dk, dv), k, v, queries, grads, sides, start, full, cols, bounds, masks,
                draw, scale_log2, D, BLOCK_D, BLOCK_M, True, MASK, FLOATING, PADDING,
                DROPOUT, PRECISION,
            )  # fmt: skip
        dk, dv = _walk_queries(
            (dk, dv), k, v, queries, grads, sides, full, part, cols, bounds, masks,
            draw, scale_log2, D, BLOCK_D, BLOCK_M, False, MASK, FLOATING, PADDING,
            DROPOUT, PRECISION,
        )  # fmt: skip
        dk, dv = _walk_queries(
            (dk, dv), k, v, queries, grads, sides, part, stop, cols, bounds, masks,
            draw, scale_log2, D, BLOCK_D, BLOCK_M, True, MASK, FLOATING, PADDING,
            DROPOUT, PRECISION,
        )  # fmt: skip
    place = (kv_plane.to(tl.int64) * kv_len + n0) * D + at[:, None] * D + d[None, :]
    tl.store(dk_ptr + place, (dk * scale).to(dk_ptr.dtype.element_ty), mask=inside)
    tl.store(dv_ptr + place, dv.to(dv_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _walk_keys(
    dq, q, g, sides, keys, values, start, stop, rows, bounds, masks, draw, scale_log2,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
    EDGE: tl.constexpr, MASK: tl.constexpr, FLOATING: tl.constexpr,
    PADDING: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add what keys start to stop give to one tile of queries."""
    lse, dot = sides
    k_head, stride_kn = keys
    v_head, stride_vn = values
    kv_len = bounds[1]
    for n0 in tl.range(start, stop, BLOCK_N):
        n0 = tl.multiple_of(n0, BLOCK_N)
        cols = n0 + tl.arange(0, BLOCK_N)
        k = load_tile(k_head, n0, stride_kn, kv_len, D, BLOCK_D, BLOCK_N, EDGE)
        v = load_tile(v_head, n0, stride_vn, kv_len, D, BLOCK_D, BLOCK_N, EDGE)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale_log2
        s = hide(
            s, rows[:, None], cols[None, :], bounds, masks, EDGE, MASK, FLOATING,
            PADDING,
        )  # fmt: skip
        p = tl.exp2(s - lse[:, None])
        dp = tl.dot(g, tl.trans(v), input_precision=PRECISION)
        if DROPOUT:
            keep = kept(draw, rows[:, None], cols[None, :])
            dp = tl.where(keep, dp * (1.0 / (1.0 - draw[2])), 0.0)
        ds = p * (dp - dot[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)
    return dq


@triton.jit(do_not_specialize=["seed"])
def _queries_kernel(
    q_ptr, k_ptr, v_ptr, mask_ptr, padding_ptr, grad_ptr, lse_ptr, dot_ptr, dq_ptr,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_gb, stride_gh, stride_gm,
    stride_mb, stride_mh, stride_mm, stride_mn,
    heads, group, q_len, kv_len, first, last, scale, scale_log2, p_drop, seed,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BOUNDED_LEFT: tl.constexpr, BOUNDED_RIGHT: tl.constexpr,
    MASK: tl.constexpr, FLOATING: tl.constexpr, PADDING: tl.constexpr,
    DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Own a tile of queries: dQ, over all keys. The walk is that of the forward."""
    tiles = tl.cdiv(q_len, BLOCK_M)
    pid = tl.program_id(0)
    m0 = (tiles - 1 - pid % tiles) * BLOCK_M
    plane = pid // tiles
    b, h = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    at, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    rows = m0 + at
    inside = (rows[:, None] < q_len) & (d[None, :] < D)
    q_head = q_ptr + b * stride_qb + h * stride_qh
    g_head = grad_ptr + b * stride_gb + h * stride_gh
    q = load_tile(q_head, m0, stride_qm, q_len, D, BLOCK_D, BLOCK_M, True)
    g = load_tile(g_head, m0, stride_gm, q_len, D, BLOCK_D, BLOCK_M, True)
    place = plane.to(tl.int64) * q_len + m0
    lse = tl.load(lse_ptr + place + at, mask=rows < q_len, other=0.0)
    lse = tl.where(lse == float("-inf"), 0.0, lse) * LOG2E
    dot = tl.load(dot_ptr + place + at, mask=rows < q_len, other=0.0)
    keys = (k_ptr + b * stride_kb + (h // group) * stride_kh, stride_kn)
    values = (v_ptr + b * stride_vb + (h // group) * stride_vh, stride_vn)
    mask_head = mask_ptr + b * stride_mb + h * stride_mh
    masks = (mask_head, padding_ptr + b * kv_len, stride_mm, stride_mn)
    bounds = (q_len, kv_len, first, last)
    sides, draw = (lse, dot), (seed, plane, p_drop)
    dq = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)

    start, full, part, stop = keys_seen(
        m0, q_len, kv_len, first, last, BLOCK_M, BLOCK_N, BOUNDED_LEFT, BOUNDED_RIGHT
    )
    if BOUNDED_LEFT:
        dq = _walk_keys(
            dq, q, g, sides, keys, values, start, full, rows, bounds, masks, draw,
            scale_log2, D, BLOCK_D, BLOCK_N, True, MASK, FLOATING, PADDING, DROPOUT,
            PRECISION,
        )  # fmt: skip
    dq = _walk_keys(
        dq, q, g, sides, keys, values, full, part, rows, bounds, masks, draw,
        scale_log2, D, BLOCK_D, BLOCK_N, False, MASK, FLOATING, PADDING, DROPOUT,
        PRECISION,
    )  # fmt: skip
    dq = _walk_keys(
        dq, q, g, sides, keys, values, part, stop, rows, bounds, masks, draw,
        scale_log2, D, BLOCK_D, BLOCK_N, True, MASK, FLOATING, PADDING, DROPOUT,
        PRECISION,
    )  # fmt: skip
    dq_at = dq_ptr + place * D + at[:, None] * D + d[None, :]
    tl.store(dq_at, (dq * scale).to(dq_ptr.dtype.element_ty), mask=inside)


def backward_triton(
    grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    out: torch.Tensor, lse: torch.Tensor, options: Options,
    keys: Tiles | None = None, queries: Tiles | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Launch the three kernels; every tensor is checked, with a last stride of 1.

    Cost: 14 * batch * heads * q_len * kv_len * head_dim FLOPs, of which ten are due
    (half under a causal mask); batch * heads * q_len floats of extra memory.
    """
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1:3]
    dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    dk = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    dv = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    if not q.numel():
        return dq, dk.zero_(), dv.zero_()
    if not k.numel():
        return dq.zero_(), dk, dv
    out, lse = out.contiguous(), lse.contiguous()
    dot = torch.empty((batch, heads, q_len), dtype=torch.float32, device=q.device)
    width = block_of(head_dim)
    block = 64 if q.device.type == "cuda" else 256
    held(_dot_rows_kernel)[(triton.cdiv(q_len, block) * batch * heads,)](
        out, grad, dot, *grad.stride()[:3], heads, q_len,
        D=head_dim, BLOCK_D=width, BLOCK_M=block,
    )  # fmt: skip
    mask, padding, told = optional(q, options)
    numbers = (
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *grad.stride()[:3],
        *mask.stride(), heads, heads // kv_heads, q_len, kv_len,
    )  # fmt: skip
    told |= {"scale": options.scale, "scale_log2": options.scale * LOG2E.value}
    inputs = (q, k, v, mask, padding, grad, lse, dot)
    by_keys, by_queries = backward_tiles(q, options)
    cut = keys or by_keys
    held(_keys_kernel)[(triton.cdiv(kv_len, cut.n) * batch * kv_heads,)](
        *inputs, dk, dv, *numbers, **told, BLOCK_M=cut.m, BLOCK_N=cut.n,
        num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip
    cut = queries or by_queries
    held(_queries_kernel)[(triton.cdiv(q_len, cut.m) * batch * heads,)](
        *inputs, dq, *numbers, **told, BLOCK_M=cut.m, BLOCK_N=cut.n,
        num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip
    return dq, dk, dv


def backward_tiles(q: torch.Tensor, options: Options) -> tuple[Tiles, Tiles]:
    """Choose tiles for the two kernels: by keys, by queries."""
    width = block_of(q.shape[3])
    if q.device.type == "cpu":
        return Tiles(64, 64, 4, 1), Tiles(64, 64, 4, 1)
    if q.dtype == torch.float32:
        small = Tiles(32, 32, 4, 1)
        return small, small
    if options.dropout_p > 0 or options.mask is not None or width > 128:
        return Tiles(32, 64, 4, 2), Tiles(64, 32, 4, 2)
    stages = 2 if options.bounded[1] else 3
    return Tiles(64, 128, 8, stages), Tiles(128, 128, 8, 2)
