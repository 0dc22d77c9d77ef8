"""Attention's weights in memory: a product and its softmax in one kernel, in Triton.

A program owns 128 rows and walks over the keys twice. The first walk keeps each row's
maximum and total (chapter 8's online rule), the second computes the same tile of scores
again and writes it normalised. So the scores pass through memory once, on their way
out: a product is done twice to save two passes over n * m numbers.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernelwright.operators import check_tensor, held, operator, recorded
from solutions.flash_attention_triton.tiles import block_of, load_tile
from solutions.matmul import matmul
from solutions.softmax import softmax
from solutions.softmax.launch import backward_into

LOG2E = 1.4426950408889634
MOST_DIM = 256
_HALVES = (torch.float16, torch.bfloat16)


@recorded
def attention_score(
    q: torch.Tensor,
    k: torch.Tensor,
    scale: float | None = None,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return how much each query attends to each key: ``softmax(scale q kᵀ + mask)``.

    Args:
        q: (..., n, d); fp16, bf16, fp32 or fp64.
        k: (..., m, d), of q's dtype, device and leading dimensions.
        scale: 1 / sqrt(d) when absent.
        mask: bool (true takes part) or floating (added to the scaled scores), of a
            shape that broadcasts to (..., n, m). No gradient flows into it.

    Returns:
        (..., n, m), contiguous; each row adds up to 1. A row that sees no key is NaN,
        as torch's is.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: in halves on a GPU 4 n m d FLOPs a matrix, and n m numbers written; else
    2 n m d and three passes more. Backward 4 n m d, and five passes.

    When not to use it: for attention. ``solutions.flash_attention`` multiplies the
    weights by v and never writes them.
    """
    _check(q, k, mask)
    width = q.shape[-1]
    found: torch.Tensor = _score(
        q, k, mask, width**-0.5 if scale is None and width else float(scale or 0.0)
    )
    return found


@operator("attention_score")
def _score(
    q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    if q.dtype in _HALVES and q.device.type == "cuda" and q.shape[-1] <= MOST_DIM:
        return scores_triton(q, k, mask, scale)
    wide = torch.float32 if q.dtype in _HALVES else q.dtype
    scores = _product(q.to(wide) * scale, k.to(wide).mT)
    if mask is not None:
        hidden = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, -torch.inf) if hidden else scores + mask
    return softmax(scores.to(wide), -1).to(q.dtype)


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply by the course's own kernel where it has the dtype, else by torch's."""
    if a.dtype == torch.float32 and a.device.type == "cuda":
        return matmul(a, b)
    return torch.matmul(a, b)


@_score.register_fake
def _(
    q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    return q.new_empty((*q.shape[:-1], k.shape[-2]))


@operator("attention_score_backward")
def _score_backward(
    slope: torch.Tensor,
    weights: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Go back through the softmax, then through the product, which is torch's here."""
    inner = torch.empty_like(weights)
    if weights.numel():
        keys = weights.shape[-1]
        rows = (t.contiguous().view(-1, keys, 1) for t in (weights, slope, inner))
        backward_into(*rows)
    inner *= scale
    return torch.matmul(inner, k), torch.matmul(inner.mT, q)


@_score_backward.register_fake
def _(
    slope: torch.Tensor, weights: torch.Tensor, q: torch.Tensor, k: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    return q.new_empty(q.shape), k.new_empty(k.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    q, k, _, ctx.scale = inputs
    ctx.save_for_backward(output, q, k)


def _gradient(ctx: Any, slope: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    found = _score_backward(slope, *ctx.saved_tensors, ctx.scale)
    return (*found, None, None)


_score.register_autograd(_gradient, setup_context=_keep)


@triton.jit
def _tile_of_scores(
    q, k_head, mask_rows, n0, keys, stride_kn, stride_mn, scale_log2,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
    MASK: tl.constexpr, FLOATING: tl.constexpr, EDGE: tl.constexpr, rows_inside,
):  # fmt: skip
    """Return scaled scores of a tile in units of log2; -inf past the last key."""
    n0 = tl.cast(n0, tl.int32)  # a Python number in the interpreter
    k = load_tile(k_head, n0, stride_kn, keys, D, BLOCK_D, BLOCK_N, EDGE, True)
    s = tl.dot(q, k, input_precision="ieee") * scale_log2
    cols = n0 + tl.arange(0, BLOCK_N)
    if MASK:
        seen = rows_inside & (cols[None, :] < keys)
        given = tl.load(mask_rows + cols[None, :] * stride_mn, mask=seen, other=0)
        if FLOATING:
            s += given.to(tl.float32) * 1.4426950408889634
        else:
            s = tl.where(given != 0, s, float("-inf"))
    if EDGE:
        s = tl.where(cols[None, :] < keys, s, float("-inf"))
    return s


@triton.jit
def _scores_kernel(
    q_ptr, k_ptr, mask_ptr, out_ptr, rows, keys, scale_log2,
    stride_qb, stride_qm, stride_kb, stride_kn, stride_mb, stride_mm, stride_mn,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, MASK: tl.constexpr, FLOATING: tl.constexpr,
    EDGE: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(rows, BLOCK_M)
    matrix = (tl.program_id(0) // tiles).to(tl.int64)
    m0 = (tl.program_id(0) % tiles) * BLOCK_M
    at = m0 + tl.arange(0, BLOCK_M)
    inside = at[:, None] < rows
    k_head = k_ptr + matrix * stride_kb
    mask_rows = mask_ptr + matrix * stride_mb + at[:, None].to(tl.int64) * stride_mm
    q = load_tile(
        q_ptr + matrix * stride_qb, m0, stride_qm, rows, D, BLOCK_D, BLOCK_M, True
    )
    highest = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    for n0 in tl.range(0, keys, BLOCK_N):
        s = _tile_of_scores(
            q, k_head, mask_rows, n0, keys, stride_kn, stride_mn, scale_log2,
            D, BLOCK_D, BLOCK_N, MASK, FLOATING, EDGE, inside,
        )  # fmt: skip
        higher = tl.maximum(highest, tl.max(s, 1))
        # Where nothing was seen yet, exp2(-inf - 0) is 0 and not NaN.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp2(highest - base) + tl.sum(tl.exp2(s - base[:, None]), 1)
        highest = higher
    # A row that sees nothing is 0 / 0, NaN as torch's: nobody overlooks that.
    saw = total > 0.0
    shift = tl.where(saw, highest + tl.log2(tl.where(saw, total, 1.0)), float("nan"))
    shift = shift[:, None]
    out_rows = out_ptr + (matrix * rows + at[:, None]) * keys
    for n0 in tl.range(0, keys, BLOCK_N):
        s = _tile_of_scores(
            q, k_head, mask_rows, n0, keys, stride_kn, stride_mn, scale_log2,
            D, BLOCK_D, BLOCK_N, MASK, FLOATING, EDGE, inside,
        )  # fmt: skip
        cols = n0 + tl.arange(0, BLOCK_N)[None, :]
        weights = tl.exp2(s - shift).to(out_ptr.dtype.element_ty)
        if EDGE:
            tl.store(out_rows + cols, weights, mask=inside & (cols < keys))
        else:
            tl.store(out_rows + cols, weights)


def scores_triton(
    q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """Launch the kernel; what it is given was checked.

    Cost: 4 n m d FLOPs a matrix; q read once, k by each program, n m numbers written.
    """
    out = torch.empty((*q.shape[:-1], k.shape[-2]), dtype=q.dtype, device=q.device)
    if not out.numel():
        return out
    q, k = (_stepping(t.reshape(-1, *t.shape[-2:])) for t in (q, k))
    given = q.new_empty(0) if mask is None else mask
    strides = (0, 0, 0)
    if mask is not None:
        given = mask.expand(out.shape).reshape(-1, *out.shape[-2:])
        strides = given.stride()
    (count, rows, width), keys = q.shape, k.shape[1]
    block_m, block_n, warps, stages = (64, 64, 4, 1) if out.is_cpu else tiles_of(width)
    held(_scores_kernel)[(triton.cdiv(rows, block_m) * count,)](
        q, k, given, out, rows, keys, scale * LOG2E, *q.stride()[:2], *k.stride()[:2],
        *strides, D=width, BLOCK_D=block_of(width), BLOCK_M=block_m, BLOCK_N=block_n,
        MASK=mask is not None, FLOATING=given.is_floating_point(),
        EDGE=rows % block_m != 0 or keys % block_n != 0,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out


def tiles_of(width: int) -> tuple[int, int, int, int]:
    """Return rows and keys of a tile, warps and stages for a length of a row of q."""
    return (128, 128, 8, 3) if width <= 128 else (64, 64, 4, 2)


def _stepping(t: torch.Tensor) -> torch.Tensor:
    return t if t.stride(-1) == 1 else t.contiguous()


def _check(q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None) -> None:
    """Validate once, at the boundary: the kernel does not."""
    for name, x in (("q", q), ("k", k)):
        check_tensor("attention_score", name, x)
    if q.dtype != k.dtype or q.device != k.device:
        raise ValueError(
            f"attention_score: q is {q.dtype} on {q.device}, k {k.dtype} on "
            f"{k.device}; wanted the same: k.to(q)."
        )
    shapes = f"q has shape {tuple(q.shape)} and k {tuple(k.shape)}"
    if q.dim() < 2 or k.dim() < 2 or q.shape[:-2] != k.shape[:-2]:
        raise ValueError(
            f"attention_score: {shapes}; wanted (..., n, d) and (..., m, d) with the "
            "same leading dimensions: k.expand(...)."
        )
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"attention_score: {shapes}; wanted rows of one length, d: k and not k.mT?"
        )
    if mask is None:
        return
    wanted = (*q.shape[:-1], k.shape[-2])
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(
            f"attention_score: mask is {mask.dtype}; wanted bool (true takes part) or "
            "a floating mask, which is added."
        )
    try:
        fits = torch.broadcast_shapes(mask.shape, wanted) == torch.Size(wanted)
    except RuntimeError:
        fits = False
    if not fits or mask.device != q.device:
        raise ValueError(
            f"attention_score: mask is {tuple(mask.shape)} on {mask.device}; wanted a "
            f"shape that broadcasts to {wanted}, on {q.device}."
        )
