"""Attention of a few new tokens over a KV cache: split the keys, then combine.

One query has no tile of its own to fill a chip with: batch * kv_heads programs would
leave most of an H200 idle. So the cache of each sequence is cut into ``splits``
pieces, a program each; every piece gives an output that is right for its own keys, and
its log-sum-exp, and a second kernel weighs the pieces by those:

    lse = log sum_s exp(lse_s)          out = sum_s exp(lse_s - lse) out_s

All query heads that share a KV head ride in one tile: the cache is read once.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from kernelwright.operators import held, operator, recorded
from solutions.flash_attention_triton.forward import block_of
from solutions.flash_attention_triton.options import check_tensors
from solutions.flash_attention_triton.visible import LOG2E

MOST_NEW = 16


@triton.jit
def _split_kernel(
    q_ptr, k_ptr, v_ptr, lengths_ptr, part_ptr, lse_ptr,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, kv_heads, group, new, max_len, window, splits,
    scale_log2,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr, LENGTHS: tl.constexpr, WINDOW: tl.constexpr,
    PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    split, plane = tl.program_id(0), tl.program_id(1)
    b, kv_h = plane // kv_heads, plane % kv_heads
    b64, kv64 = b.to(tl.int64), kv_h.to(tl.int64)
    length = max_len
    if LENGTHS:
        length = tl.minimum(tl.load(lengths_ptr + b).to(tl.int32), max_len)
    # Row r of the tile: new token r // group, query head r % group of the KV head.
    r, d = tl.arange(0, BLOCK_R), tl.arange(0, BLOCK_D)
    token = r // group
    real = r < group * new
    at = token * stride_qm + (r % group) * stride_qh
    q_head = q_ptr + b64 * stride_qb + kv64 * group * stride_qh
    inside = real[:, None] & (d[None, :] < D)
    q = tl.load(q_head + at[:, None] + d[None, :], mask=inside, other=0.0)
    last = length - new + token  # the newest key that this row's token sees

    begin = length * 0
    if WINDOW:
        begin = tl.maximum(0, length - new + 1 - window)
    # Every sequence is cut into as many pieces, whatever its length.
    piece = tl.cdiv(tl.cdiv(length - begin, splits), BLOCK_N) * BLOCK_N
    start = begin + split * piece
    stop = tl.minimum(length, start + piece)
    acc = tl.zeros([BLOCK_R, BLOCK_D], tl.float32)
    denom = tl.zeros([BLOCK_R], tl.float32)
    m = tl.full([BLOCK_R], float("-inf"), tl.float32)
    k_head = k_ptr + b64 * stride_kb + kv64 * stride_kh
    v_head = v_ptr + b64 * stride_vb + kv64 * stride_vh
    for n0 in tl.range(start, stop, BLOCK_N, num_stages=STAGES):
        n0 = tl.multiple_of(n0, 1)  # a tensor, under the interpreter too
        c = tl.arange(0, BLOCK_N)
        cols = n0 + c
        there = cols < stop
        k_at = k_head + n0.to(tl.int64) * stride_kn + c[None, :] * stride_kn
        v_at = v_head + n0.to(tl.int64) * stride_vn + c[:, None] * stride_vn
        k = tl.load(
            k_at + d[:, None], mask=there[None, :] & (d[:, None] < D), other=0.0
        )
        v = tl.load(
            v_at + d[None, :], mask=there[:, None] & (d[None, :] < D), other=0.0
        )
        s = tl.dot(q, k, input_precision=PRECISION) * scale_log2
        seen = there[None, :] & (cols[None, :] <= last[:, None])
        if WINDOW:
            seen &= cols[None, :] > last[:, None] - window
        s = tl.where(seen, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(s - m_safe[:, None])
        alpha = tl.exp2(m - m_safe)
        denom = denom * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)
        m = m_new
    share = tl.where(denom == 0.0, 1.0, denom)
    out = acc / share[:, None]
    place = (plane.to(tl.int64) * splits + split) * BLOCK_R
    tl.store(part_ptr + place * D + r[:, None] * D + d[None, :], out, mask=inside)
    lse = tl.where(denom == 0.0, float("-inf"), m + tl.log2(share))
    tl.store(lse_ptr + place + r, lse, mask=real)


@triton.jit
def _combine_kernel(
    part_ptr, lse_ptr, out_ptr, stride_ob, stride_oh, stride_om, kv_heads, group,
    splits, rows, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Weigh one row's pieces by exp2(lse_s - lse); pieces with no keys weigh 0."""
    plane, row = tl.program_id(0), tl.program_id(1)
    s, d = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    place = (plane.to(tl.int64) * splits + s) * BLOCK_R + row
    lse = tl.load(lse_ptr + place, mask=s < splits, other=float("-inf"))
    most = tl.max(lse, 0)
    weight = tl.exp2(lse - tl.where(most == float("-inf"), 0.0, most))
    total = tl.sum(weight, 0)
    inside = (s[:, None] < splits) & (d[None, :] < D)
    part = tl.load(part_ptr + place[:, None] * D + d[None, :], mask=inside, other=0.0)
    out = tl.sum(part * weight[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    b, kv_h = (plane // kv_heads).to(tl.int64), plane % kv_heads
    head, token = kv_h * group + row % group, row // group
    at = out_ptr + b * stride_ob + head * stride_oh + token * stride_om
    tl.store(at + d, out.to(out_ptr.dtype.element_ty), mask=d < D)


@recorded
def decode_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    lengths: torch.Tensor | None = None,
    *,
    scale: float | None = None,
    window: int | None = None,
    splits: int | None = None,
) -> torch.Tensor:
    """Attend from the newest tokens over a KV cache.

        out[b, h] = sum_j softmax_j(scale * q[b, h] . k[b, h / group, j]) v[.., j]

    Args:
        q: (batch, heads, head_dim), or (batch, heads, new, head_dim) with new <= 16
            tokens, which see one another causally; fp16, bf16 or fp32.
        k_cache: (batch, kv_heads, max_len, head_dim), any strides with a last of 1;
            the new tokens' keys are in it already.
        v_cache: as k_cache.
        lengths: int32 or int64 (batch,): how many keys of each sequence are valid,
            the new ones included, on q's device; max_len each when absent.
        scale: 1 / sqrt(head_dim) when absent.
        window: each token sees itself and the ``window - 1`` before it.
        splits: pieces that each cache is cut into; chosen for the device when absent.

    Returns:
        q's shape and dtype. A sequence of length 0 gives zeros.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: 4 * batch * heads * new * length * head_dim FLOPs; each cache read once.

    Source: Dao and others, *Flash-Decoding for long-context inference* (2023).
    """
    if q.ndim not in (3, 4):
        raise ValueError(
            f"q has shape {tuple(q.shape)}; wanted (batch, heads, head_dim) or (batch, "
            "heads, new, head_dim)."
        )
    q4 = q.unsqueeze(2) if q.ndim == 3 else q
    check_tensors(q4, k_cache, v_cache)
    _check_decode(q4, lengths, window, splits)
    if scale is None:
        scale = 1.0 / math.sqrt(q.shape[-1])
    out: torch.Tensor = _decode(q, k_cache, v_cache, lengths, scale, window, splits)
    return out


@operator("decode_attention")
def _decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    lengths: torch.Tensor | None,
    scale: float,
    window: int | None,
    splits: int | None,
) -> torch.Tensor:
    if q.dtype == torch.bfloat16 and q.device.type == "cpu":
        # The interpreter's bf16 is wrong.
        wide = (t.float() for t in (q, k_cache, v_cache))
        return _decode(*wide, lengths, scale, window, splits).to(q.dtype)
    q4 = q.unsqueeze(2) if q.ndim == 3 else q
    batch, heads, new, head_dim = q4.shape
    kv_heads, max_len = k_cache.shape[1:3]
    out = torch.empty(q4.shape, dtype=q4.dtype, device=q4.device)
    if not out.numel():
        return out.view(q.shape)
    if not max_len:
        return out.zero_().view(q.shape)
    q4, k, v = (
        t if t.stride(-1) == 1 else t.contiguous() for t in (q4, k_cache, v_cache)
    )
    group = heads // kv_heads
    rows = group * new
    block_r, block_n = max(16, triton.next_power_of_2(rows)), _keys_a_step(q4)
    planes = batch * kv_heads
    pieces = splits or _splits(planes, max_len, block_n, q4.device)
    part = torch.empty(
        (planes, pieces, block_r, head_dim), dtype=torch.float32, device=q4.device
    )
    lse = torch.empty(part.shape[:3], dtype=torch.float32, device=q4.device)
    width = block_of(head_dim)
    held(_split_kernel)[(pieces, planes)](
        q4, k, v, q4 if lengths is None else lengths, part, lse,
        *q4.stride()[:3], *k.stride()[:3], *v.stride()[:3], kv_heads, group, new,
        max_len, window or 0, pieces, scale * LOG2E.value,
        D=head_dim, BLOCK_D=width, BLOCK_R=block_r, BLOCK_N=block_n,
        LENGTHS=lengths is not None, WINDOW=window is not None, PRECISION="ieee",
        STAGES=3, num_warps=4,
    )  # fmt: skip
    held(_combine_kernel)[(planes, rows)](
        part, lse, out, *out.stride()[:3], kv_heads, group, pieces, rows,
        D=head_dim, BLOCK_D=width, BLOCK_R=block_r,
        BLOCK_S=triton.next_power_of_2(pieces), num_warps=4,
    )  # fmt: skip
    return out.view(q.shape)


_decode.register_fake(lambda q, *rest: q.new_empty(q.shape))


def _keys_a_step(q: torch.Tensor) -> int:
    if q.device.type == "cpu":
        return 256
    return 32 if q.dtype == torch.float32 or q.shape[3] > 128 else 128


def _splits(planes: int, max_len: int, block_n: int, device: torch.device) -> int:
    """Cut into as many pieces as fill the chip once, and each no shorter than a few.

    A program's stages of keys and values take 136 KB of shared memory at head_dim
    128: one to an SM. On an H200 two pieces of each of 64 planes, 128
    programs for 132 SMs, read faster than 4, 8 or 16.
    """
    most = max(1, max_len // (4 * block_n))
    if device.type == "cpu":
        return min(4, most)
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    if planes <= sms:
        return min(most, sms // planes, 128)
    # Rounds of programs are whole: take the fewest pieces that fill theirs well.
    filled = {s: planes * s / (triton.cdiv(planes * s, sms) * sms) for s in (1, 2, 3)}
    return min(most, max(filled, key=lambda s: filled[s] - 0.02 * s))


def _check_decode(
    q: torch.Tensor, lengths: torch.Tensor | None, window: int | None,
    splits: int | None,
) -> None:  # fmt: skip
    batch, _, new, _ = q.shape
    if new > MOST_NEW:
        raise ValueError(
            f"q has {new} new tokens; decode takes at most {MOST_NEW}: use forward "
            "with causal='bottom-right'."
        )
    if window is not None and window < 1:
        raise ValueError(f"window is {window}; wanted 1 key at least, or None.")
    if splits is not None and splits < 1:
        raise ValueError(f"splits is {splits}; wanted 1 at least, or None.")
    if lengths is None:
        return
    if lengths.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"lengths is {lengths.dtype}; wanted int32: lengths.int().")
    if tuple(lengths.shape) != (batch,) or not lengths.is_contiguous():
        raise ValueError(
            f"lengths has shape {tuple(lengths.shape)}; wanted ({batch},), contiguous."
        )
    if lengths.device != q.device:
        raise ValueError(f"lengths is on {lengths.device}, q on {q.device}.")
