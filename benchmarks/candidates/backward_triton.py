"""Attention backward in one pass, in plain Triton: five products, no roles.

The loop of ``backward_fused`` as a Triton programmer writes it. The compiler says when
to load and which product to wait for, and dQ is added to global memory by TMA, tile by
tile: in whatever order the programs come, so that its bits differ from run to run.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from benchmarks.candidates.backward_ends import prepare_kernel
from solutions.flash_attention_triton.options import UNBOUNDED, Options
from solutions.flash_attention_triton.tiles import load_tile

LOG2E = 1.4426950408889634
KEYS = 128


@triton.jit
def _walk(
    dk, dv, k, v, q_head, g_head, stats, sum_desc, sum_ptr, tile0, start, stop, cols,
    q_len, kv_len, last, scale_log2, stride_qm, stride_gm,
    D: tl.constexpr, ROWS: tl.constexpr, EDGE: tl.constexpr, STAGES: tl.constexpr,
    BULK: tl.constexpr,
):  # fmt: skip
    """Add what tiles start to stop of queries give to 128 keys, and theirs to dQ."""
    at = tl.arange(0, ROWS)
    for m in tl.range(start, stop, num_stages=STAGES):
        m0 = m * ROWS
        q = load_tile(q_head, m0, stride_qm, q_len, D, D, ROWS, EDGE)
        g = load_tile(g_head, m0, stride_gm, q_len, D, D, ROWS, EDGE)
        lse = tl.load(stats + m * (2 * ROWS) + at)
        dot = tl.load(stats + m * (2 * ROWS) + ROWS + at)  # -D
        s = tl.dot(k, tl.trans(q), input_precision="ieee") * scale_log2
        if EDGE:
            rows = m0 + at
            seen = (cols[:, None] < kv_len) & (cols[:, None] <= rows[None, :] + last)
            s = tl.where(seen, s, float("-inf"))
        p = tl.exp2(s - lse[None, :])
        dp = tl.dot(v, tl.trans(g), input_precision="ieee")
        dv = tl.dot(p.to(g.dtype), g, dv, input_precision="ieee")
        ds = (p * (dp + dot[None, :])).to(q.dtype)
        dk = tl.dot(ds, q, dk, input_precision="ieee")
        dq = tl.dot(tl.trans(ds), k, input_precision="ieee")
        if BULK:
            sum_desc.atomic_add([(tile0 + m) * ROWS, 0], dq)
        else:
            d = tl.arange(0, D)[None, :]
            place = (tile0 + m).to(tl.int64) * (ROWS * D) + at[:, None] * D + d
            tl.atomic_add(sum_ptr + place, dq, sem="relaxed")
    return dk, dv


@triton.jit
def pass_kernel(
    q_ptr, k_ptr, v_ptr, grad_ptr, stat_ptr, sum_desc, sum_ptr, dk_ptr, dv_ptr,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_gb, stride_gh, stride_gm,
    heads, group, q_len, kv_len, last, scale, scale_log2,
    D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, BOUNDED: tl.constexpr,
    STAGES: tl.constexpr, BULK: tl.constexpr,
):  # fmt: skip
    """Own 128 keys: dK and dV, over all queries and all heads of the group."""
    all_tiles = tl.cdiv(kv_len, KEYS)
    n0 = (tl.program_id(0) % all_tiles) * KEYS
    kv_plane = tl.program_id(0) // all_tiles
    kv_heads = heads // group
    b, kv_h = kv_plane // kv_heads, kv_plane % kv_heads
    b64, kv64 = b.to(tl.int64), kv_h.to(tl.int64)
    at, d = tl.arange(0, KEYS), tl.arange(0, D)
    cols = n0 + at
    k_head = k_ptr + b64 * stride_kb + kv64 * stride_kh
    v_head = v_ptr + b64 * stride_vb + kv64 * stride_vh
    k = load_tile(k_head, n0, stride_kn, kv_len, D, D, KEYS, True)
    v = load_tile(v_head, n0, stride_vn, kv_len, D, D, KEYS, True)
    dk = tl.zeros([KEYS, D], tl.float32)
    dv = tl.zeros([KEYS, D], tl.float32)

    # Tiles of queries: first that sees a key, first that sees all, last whole one.
    tiles = tl.cdiv(q_len, ROWS)
    whole = q_len // ROWS
    first, full = 0, 0
    if BOUNDED:
        first = tl.minimum(tl.maximum(n0 - last, 0) // ROWS, tiles)
        full = tl.minimum(tl.cdiv(tl.maximum(n0 + KEYS - 1 - last, 0), ROWS), tiles)
    if n0 + KEYS > kv_len:
        full = tiles
    whole = tl.maximum(whole, full)
    for i in range(group):
        h = kv_h * group + i
        q_head = q_ptr + b64 * stride_qb + h.to(tl.int64) * stride_qh
        g_head = grad_ptr + b64 * stride_gb + h.to(tl.int64) * stride_gh
        tile0 = (b * heads + h) * tiles
        stats = stat_ptr + tile0.to(tl.int64) * (2 * ROWS)
        dk, dv = _walk(
            dk, dv, k, v, q_head, g_head, stats, sum_desc, sum_ptr, tile0, first, full,
            cols, q_len, kv_len, last, scale_log2, stride_qm, stride_gm, D, ROWS, True,
            STAGES, BULK,
        )  # fmt: skip
        dk, dv = _walk(
            dk, dv, k, v, q_head, g_head, stats, sum_desc, sum_ptr, tile0, full, whole,
            cols, q_len, kv_len, last, scale_log2, stride_qm, stride_gm, D, ROWS, False,
            STAGES, BULK,
        )  # fmt: skip
        # The last tile, where the end of the queries cuts it.
        dk, dv = _walk(
            dk, dv, k, v, q_head, g_head, stats, sum_desc, sum_ptr, tile0, whole, tiles,
            cols, q_len, kv_len, last, scale_log2, stride_qm, stride_gm, D, ROWS, True,
            STAGES, BULK,
        )  # fmt: skip
    inside = cols[:, None] < kv_len
    place = (kv_plane.to(tl.int64) * kv_len + n0) * D + at[:, None] * D + d[None, :]
    tl.store(dk_ptr + place, (dk * scale).to(dk_ptr.dtype.element_ty), mask=inside)
    tl.store(dv_ptr + place, dv.to(dv_ptr.dtype.element_ty), mask=inside)


@triton.jit
def round_kernel(sum_ptr, dq_ptr, q_len, scale, D: tl.constexpr, ROWS: tl.constexpr):
    """Own 64 queries: scale and round the sums of their dQ."""
    tiles = tl.cdiv(q_len, ROWS)
    pid = tl.program_id(0)
    plane, m0 = pid // tiles, (pid % tiles) * ROWS
    at, d = tl.arange(0, ROWS)[:, None], tl.arange(0, D)[None, :]
    dq = tl.load(sum_ptr + pid.to(tl.int64) * (ROWS * D) + at * D + d) * scale
    place = dq_ptr + (plane.to(tl.int64) * q_len + m0) * D + at * D + d
    tl.store(place, dq.to(dq_ptr.dtype.element_ty), mask=m0 + at < q_len)


def backward_triton_fused(
    grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    out: torch.Tensor, lse: torch.Tensor, options: Options, warps: int = 8,
    stages: int = 2, bulk: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return dq, dk and dv of attention at head_dim 128: ``backward_fused``'s twin.

    Args:
        grad: as there; float32, too, for the interpreter.
        q: likewise.
        k: likewise.
        v: likewise.
        out: likewise.
        lse: likewise.
        options: likewise.
        warps: of a program.
        stages: tiles of Q and dO that are on their way or in use.
        bulk: add to dQ by TMA, which the interpreter does not know; else by atomics.

    Returns:
        dq, dk, dv, contiguous, of the shape and dtype of q, k, v.
    """
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1:3]
    rows = 64
    dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    dk = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    dv = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    tiles = batch * heads * triton.cdiv(q_len, rows)
    stats = torch.empty((tiles, 2 * rows), dtype=torch.float32, device=q.device)
    sums = torch.empty((tiles * rows, head_dim), device=q.device)
    turns = torch.empty(tiles + 1, dtype=torch.int32, device=q.device)
    prepare_kernel[(tiles,)](
        out.contiguous(), grad, lse.contiguous(), stats, sums, turns,
        *grad.stride()[:3], heads, q_len, D=head_dim,
    )  # fmt: skip
    bounded = options.bounded[1]
    pass_kernel[(triton.cdiv(kv_len, KEYS) * batch * kv_heads,)](
        q, k, v, grad, stats,
        TensorDescriptor.from_tensor(sums, [rows, head_dim]) if bulk else None,
        sums, dk, dv, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        *grad.stride()[:3],
        heads, heads // kv_heads, q_len, kv_len,
        options.last if bounded else UNBOUNDED, options.scale, options.scale * LOG2E,
        D=head_dim, ROWS=rows, KEYS=KEYS, BOUNDED=bounded, STAGES=stages,
        BULK=bulk, num_warps=warps,
    )  # fmt: skip
    round_kernel[(tiles,)](sums, dq, q_len, options.scale, D=head_dim, ROWS=rows)
    return dq, dk, dv
