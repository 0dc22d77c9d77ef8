"""Triton kernels that no earlier chapter has: rotary, the norm of a sum, the loss."""

from __future__ import annotations

import triton
import triton.language as tl

import kernelwright  # noqa: F401  before Triton: without a GPU its interpreter is chosen


@triton.jit(do_not_specialize=("heads", "kv_heads"))
def rotate_kernel(
    joined, q, k, v, positions, cosines, sines,
    joined_row, q_batch, q_head, q_row, k_batch, k_head, k_row,
    v_batch, v_head, v_row, length, heads, kv_heads,
    HALF: tl.constexpr, BLOCK: tl.constexpr, HEADS: tl.constexpr, BACK: tl.constexpr,
    APPEND: tl.constexpr,
):  # fmt: skip
    """Split a token's row into heads, and turn those of q and k by its position.

    Forward reads ``joined`` and writes q, k, v; backward reads those and writes
    ``joined``, turned the other way. With APPEND keys and values go to the row of a
    cache that the token's position names. A program has q's, k's or v's heads of a
    token, HEADS at a time.
    """
    token = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    batch, row = token // length, token % length
    place = tl.load(positions + token)
    kept = place.to(tl.int64) if APPEND else row
    whole = joined + token * joined_row
    if part == 0:
        split, stride, count = q + batch * q_batch + row * q_row, q_head, heads
    elif part == 1:
        split, stride, count = k + batch * k_batch + kept * k_row, k_head, kv_heads
        whole += heads * (2 * HALF)
    else:
        split, stride, count = v + batch * v_batch + kept * v_row, v_head, kv_heads
        whole += (heads + kv_heads) * (2 * HALF)
    half = tl.arange(0, BLOCK)
    cosine = tl.load(cosines + place * HALF + half, mask=half < HALF)[None, :]
    sine = tl.load(sines + place * HALF + half, mask=half < HALF)[None, :]
    if BACK:
        sine = -sine
    for first in range(0, count, HEADS):
        head = first + tl.arange(0, HEADS)[:, None]
        inside = (head < count) & (half < HALF)[None, :]
        source = whole + head * (2 * HALF) + half[None, :]
        target = split + head * stride + half[None, :]
        if BACK:
            source, target = target, source
        x = tl.load(source, mask=inside).to(tl.float32)
        y = tl.load(source + HALF, mask=inside).to(tl.float32)
        turned_x = tl.where(part < 2, x * cosine - y * sine, x)
        turned_y = tl.where(part < 2, y * cosine + x * sine, y)
        kind = target.dtype.element_ty
        tl.store(target, turned_x.to(kind), mask=inside)
        tl.store(target + HALF, turned_y.to(kind), mask=inside)


@triton.jit
def add_norm_kernel(x, y, weight, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Add y to x where x lies, and write the sum's RMS norm."""
    row = tl.program_id(0).to(tl.int64) * WIDTH
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    total = tl.load(x + row + column, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(y + row + column, mask=inside, other=0.0).to(tl.float32)
    # As torch rounds it: what is normalised is the sum that is kept.
    total = total.to(x.dtype.element_ty)
    tl.store(x + row + column, total, mask=inside)
    total = total.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(total * total, 0) / WIDTH + eps)
    scaled = total * scale
    scaled *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + column, scaled.to(out.dtype.element_ty), mask=inside)


@triton.jit
def gate_kernel(both, out, width, BLOCK: tl.constexpr):
    """Write silu(gate) * up, of rows that hold the gates first."""
    row = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    gate = tl.load(both + row * 2 * width + column, mask=inside, other=0.0)
    up = tl.load(both + row * 2 * width + width + column, mask=inside, other=0.0)
    gate = gate.to(tl.float32)
    out_value = gate / (1.0 + tl.exp(-gate)) * up.to(tl.float32)
    value = out_value.to(out.dtype.element_ty)
    tl.store(out + row * width + column, value, mask=inside)


@triton.jit
def cross_entropy_kernel(logits, targets, losses, scale, size, BLOCK: tl.constexpr):
    """Replace a row of logits by its gradient, and write its loss.

    Maximum and sum in one sweep by chapter 8's online rule; the second sweep writes
    ``scale * (softmax - one at the target)``. A target below 0 counts for nothing.
    """
    row = tl.program_id(0).to(tl.int64)
    base = logits + row * size
    target = tl.load(targets + row)
    highest = -float("inf")
    total = 0.0
    for first in range(0, size, BLOCK):
        column = first + tl.arange(0, BLOCK)
        x = tl.load(base + column, mask=column < size, other=-float("inf"))
        x = x.to(tl.float32)
        new = tl.maximum(highest, tl.max(x, 0))
        total = total * tl.exp(highest - new) + tl.sum(tl.exp(x - new), 0)
        highest = new
    counts = target >= 0
    right = tl.load(base + tl.maximum(target, 0)).to(tl.float32)
    loss = tl.where(counts, highest + tl.log(total) - right, 0.0)
    tl.store(losses + row, loss)
    factor = tl.where(counts, scale, 0.0)
    # All lanes have read the target's logit before one of them overwrites it.
    tl.debug_barrier()
    for first in range(0, size, BLOCK):
        column = first + tl.arange(0, BLOCK)
        x = tl.load(base + column, mask=column < size, other=-float("inf"))
        slope = tl.exp(x.to(tl.float32) - highest) / total
        slope -= tl.where(column == target, 1.0, 0.0)
        slope = (slope * factor).to(logits.dtype.element_ty)
        tl.store(base + column, slope, mask=column < size)
