"""Triton kernels that no earlier chapter has: rotary, the norm of a sum, the loss."""

from __future__ import annotations

import triton
import triton.language as tl

import kernelwright  # noqa: F401  before Triton: without a GPU its interpreter is chosen


@triton.jit
def rotate_kernel(
    joined, q, k, v, positions, cosines, sines,
    joined_row, q_batch, q_head, q_row, k_batch, k_head, k_row,
    v_batch, v_head, v_row, length, heads, kv_heads,
    HALF: tl.constexpr, BLOCK: tl.constexpr, BACK: tl.constexpr, APPEND: tl.constexpr,
):  # fmt: skip
    """Split a token's row into heads, and turn those of q and k by its position.

    Forward reads ``joined`` and writes q, k, v; backward reads those and writes
    ``joined``, turned the other way. With APPEND keys and values go to the row of a
    cache that the token's position names.
    """
    token = tl.program_id(0).to(tl.int64)
    batch, row = token // length, token % length
    place = tl.load(positions + token)
    half = tl.arange(0, BLOCK)
    inside = half < HALF
    cosine = tl.load(cosines + place * HALF + half, mask=inside, other=1.0)
    sine = tl.load(sines + place * HALF + half, mask=inside, other=0.0)
    if BACK:
        sine = -sine
    kept = place.to(tl.int64) if APPEND else row
    for head in range(heads + 2 * kv_heads):
        whole = joined + token * joined_row + head * 2 * HALF
        if head < heads:
            split = q + batch * q_batch + head * q_head + row * q_row
        elif head < heads + kv_heads:
            split = k + batch * k_batch + (head - heads) * k_head + kept * k_row
        else:
            split = v + batch * v_batch + kept * v_row
            split += (head - heads - kv_heads) * v_head
        if BACK:
            source, target = split, whole
        else:
            source, target = whole, split
        x = tl.load(source + half, mask=inside).to(tl.float32)
        y = tl.load(source + HALF + half, mask=inside).to(tl.float32)
        turned_x, turned_y = x, y
        if head < heads + kv_heads:
            turned_x, turned_y = x * cosine - y * sine, y * cosine + x * sine
        tl.store(target + half, turned_x.to(target.dtype.element_ty), mask=inside)
        tl.store(
            target + HALF + half, turned_y.to(target.dtype.element_ty), mask=inside
        )


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
