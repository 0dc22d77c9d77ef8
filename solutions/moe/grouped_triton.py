"""Products of ragged experts in Triton: for any GPU, and for fp32 too."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernelwright.operators import held

TALL = 128  # rows of a tile, as tiles.cu lists them
_WIDE, _STEP = 64, 32


@triton.jit
def _grouped_kernel(
    x_ptr, weight_ptr, out_ptr, list_ptr, columns, inner,
    stride_expert, stride_inner, stride_column,
    TALL: tl.constexpr, WIDE: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    if tile >= tl.load(list_ptr):
        return
    expert = tl.load(list_ptr + 4 * tile + 4)
    end = tl.load(list_ptr + 4 * tile + 6)
    rows = tl.load(list_ptr + 4 * tile + 5) + tl.arange(0, TALL)
    cols = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    acc = tl.zeros([TALL, WIDE], tl.float32)
    weight_ptr += expert.to(tl.int64) * stride_expert
    if expert >= 0:
        for k in range(0, inner, STEP):
            ks = k + tl.arange(0, STEP)
            x = tl.load(
                x_ptr + rows[:, None].to(tl.int64) * inner + ks[None, :],
                mask=(rows[:, None] < end) & (ks[None, :] < inner),
                other=0.0,
            )
            weight = tl.load(
                weight_ptr + ks[:, None] * stride_inner + cols[None, :] * stride_column,
                mask=(ks[:, None] < inner) & (cols[None, :] < columns),
                other=0.0,
            )
            acc = tl.dot(x, weight, acc, input_precision="ieee")
    tl.store(
        out_ptr + rows[:, None].to(tl.int64) * columns + cols[None, :],
        acc.to(out_ptr.dtype.element_ty),
        mask=(rows[:, None] < end) & (cols[None, :] < columns),
    )


def grouped(
    x: torch.Tensor, weights: torch.Tensor, tiles: torch.Tensor
) -> torch.Tensor:
    """Multiply each expert's rows by its matrix.

    Args:
        x: (height, inner), fp16, bf16 or fp32, contiguous.
        weights: (experts, inner, columns), of any strides.
        tiles: what ``tiles.cu`` listed.
    """
    height, inner = x.shape
    columns = weights.shape[2]
    out = x.new_empty(height, columns)
    grid = tiles.shape[0] - 1, triton.cdiv(columns, _WIDE)
    held(_grouped_kernel)[grid](
        x, weights, out, tiles, columns, inner, *weights.stride(),
        TALL=TALL, WIDE=_WIDE, STEP=_STEP, num_warps=8,
    )  # fmt: skip
    return out


@triton.jit
def _weights_kernel(
    a_ptr, b_ptr, out_ptr, begins_ptr, ends_ptr, m, n,
    TALL: tl.constexpr, WIDE: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    expert = tl.program_id(2)
    begin, end = tl.load(begins_ptr + expert), tl.load(ends_ptr + expert)
    ms = tl.program_id(0) * TALL + tl.arange(0, TALL)
    ns = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    acc = tl.zeros([TALL, WIDE], tl.float32)
    for first in range(begin, end, STEP):
        rows = (first + tl.arange(0, STEP)).to(tl.int64)
        a = tl.load(
            a_ptr + rows[None, :] * m + ms[:, None],
            mask=(rows[None, :] < end) & (ms[:, None] < m),
            other=0.0,
        )
        b = tl.load(
            b_ptr + rows[:, None] * n + ns[None, :],
            mask=(rows[:, None] < end) & (ns[None, :] < n),
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(
        out_ptr + expert.to(tl.int64) * m * n + ms[:, None] * n + ns[None, :],
        acc.to(out_ptr.dtype.element_ty),
        mask=(ms[:, None] < m) & (ns[None, :] < n),
    )


def weights_gradient(
    a: torch.Tensor, b: torch.Tensor, begins: torch.Tensor, ends: torch.Tensor
) -> torch.Tensor:
    """Return ``aᵀ b`` of each expert's rows: (experts, m, n)."""
    experts, m, n = begins.shape[0], a.shape[1], b.shape[1]
    out = a.new_empty(experts, m, n)
    grid = triton.cdiv(m, TALL), triton.cdiv(n, _WIDE), experts
    held(_weights_kernel)[grid](
        a, b, out, begins, ends, m, n, TALL=TALL, WIDE=_WIDE, STEP=_STEP, num_warps=8
    )
    return out
