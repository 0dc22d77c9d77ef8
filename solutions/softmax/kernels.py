"""What ``softmax`` launches: forward and backward, whole rows and rows in pieces.

A contiguous tensor is (outer, length, inner), and each sum runs over `length`. Numbers
are widened to WIDE (float32; float64 stays), and rounded once at the end. Offsets are
64 bits wide: a tensor may have more than 2^31 elements.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def widened(ptr, at, inside, other, WIDE: tl.constexpr):
    """Load numbers and widen them; outside they are `other`."""
    return tl.load(ptr + at, mask=inside, other=other).to(WIDE)


@triton.jit
def put(ptr, at, inside, values):
    """Round values to what the memory holds, and store them."""
    tl.store(ptr + at, values.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def cut(number, pieces, length, BLOCK: tl.constexpr):
    """Return a piece's row, where its numbers lie, and which of them the row has."""
    row = (number // pieces).to(tl.int64)
    c = number % pieces * BLOCK + tl.arange(0, BLOCK)
    return row, row * length + c, c < length


@triton.jit
def weights_of(x):
    """Return a piece's maximum and exp(x - maximum), 0 where all of it is -inf."""
    maximum = tl.max(x, 0)
    base = tl.where(maximum == float("-inf"), 0.0, maximum)  # -inf - -inf is NaN
    return maximum, tl.exp(x - base)


@triton.jit
def _softmax_of(x, axis: tl.constexpr):
    """Return the softmax along an axis; what is past the end is -inf."""
    weight = tl.exp(x - tl.max(x, axis, keep_dims=True))
    return weight * (1.0 / tl.sum(weight, axis, keep_dims=True))


@triton.jit
def rows_kernel(
    x_ptr, out_ptr, rows, length,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Own ROWS rows, each in registers as a whole; inner is 1."""
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    at = r[:, None] * length + c[None, :]
    inside = (r[:, None] < rows) & (c[None, :] < length)
    # Rows past the last are zeros: of -inf alone they would make NaN, unseen.
    x = widened(x_ptr, at, inside, 0.0, WIDE)
    x = tl.where(c[None, :] < length, x, float("-inf"))
    out = _softmax_of(x, 1)
    put(out_ptr, at, inside, out)


@triton.jit
def columns_kernel(
    x_ptr, out_ptr, length, inner, tiles,
    COLS: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Own COLS neighbours in memory, each with a sum of its own down `length`."""
    pid = tl.program_id(0).to(tl.int64)
    i = pid % tiles * COLS + tl.arange(0, COLS)
    c = tl.arange(0, BLOCK).to(tl.int64)
    at = pid // tiles * length * inner + c[:, None] * inner + i[None, :]
    inside = (c[:, None] < length) & (i[None, :] < inner)
    x = widened(x_ptr, at, inside, 0.0, WIDE)
    x = tl.where(c[:, None] < length, x, float("-inf"))
    out = _softmax_of(x, 0)
    put(out_ptr, at, inside, out)


@triton.jit
def rows_backward_kernel(
    y_ptr, grad_ptr, out_ptr, rows, length,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Own ROWS rows: y * (grad - the row's sum of y * grad)."""
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    at = r[:, None] * length + c[None, :]
    inside = (r[:, None] < rows) & (c[None, :] < length)
    y = widened(y_ptr, at, inside, 0.0, WIDE)
    grad = widened(grad_ptr, at, inside, 0.0, WIDE)
    out = y * (grad - tl.sum(y * grad, 1, keep_dims=True))
    put(out_ptr, at, inside, out)


@triton.jit
def columns_backward_kernel(
    y_ptr, grad_ptr, out_ptr, length, inner, tiles,
    COLS: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Own COLS neighbours in memory, as ``columns_kernel``."""
    pid = tl.program_id(0).to(tl.int64)
    i = pid % tiles * COLS + tl.arange(0, COLS)
    c = tl.arange(0, BLOCK).to(tl.int64)
    at = pid // tiles * length * inner + c[:, None] * inner + i[None, :]
    inside = (c[:, None] < length) & (i[None, :] < inner)
    y = widened(y_ptr, at, inside, 0.0, WIDE)
    grad = widened(grad_ptr, at, inside, 0.0, WIDE)
    out = y * (grad - tl.sum(y * grad, 0, keep_dims=True))
    put(out_ptr, at, inside, out)


# --- rows in pieces: a launch for the pieces' sums, one to add up, one to write -----


@triton.jit
def pieces_kernel(
    x_ptr, maximum_ptr, total_ptr, length, pieces,
    BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Own one piece; leave its maximum, and its sum of exp(x - maximum)."""
    pid = tl.program_id(0)
    _, at, inside = cut(pid, pieces, length, BLOCK)
    maximum, weight = weights_of(widened(x_ptr, at, inside, float("-inf"), WIDE))
    tl.store(maximum_ptr + pid, maximum)
    tl.store(total_ptr + pid, tl.sum(weight, 0))


@triton.jit
def fold_kernel(
    maximum_ptr, total_ptr, top_ptr, share_ptr, pieces,
    BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Own one row: fold its pieces into a maximum and 1 / total."""
    row = tl.program_id(0).to(tl.int64)
    maximum = tl.full([BLOCK], float("-inf"), WIDE)
    total = tl.zeros([BLOCK], WIDE)
    for first in tl.range(0, pieces, BLOCK):
        p = first + tl.arange(0, BLOCK)
        inside = p < pieces
        theirs = tl.load(
            maximum_ptr + row * pieces + p, mask=inside, other=float("-inf")
        )
        sums = tl.load(total_ptr + row * pieces + p, mask=inside, other=0.0)
        higher = tl.maximum(maximum, theirs)
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(maximum - base) + sums * tl.exp(theirs - base)
        maximum = higher
    top = tl.max(maximum, 0)
    base = tl.where(top == float("-inf"), 0.0, top)
    tl.store(top_ptr + row, top)
    tl.store(share_ptr + row, 1.0 / tl.sum(total * tl.exp(maximum - base), 0))


@triton.jit
def write_kernel(
    x_ptr, top_ptr, share_ptr, out_ptr, length, pieces,
    BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Own one piece: exp(x - the row's maximum) / the row's total."""
    row, at, inside = cut(tl.program_id(0), pieces, length, BLOCK)
    x = widened(x_ptr, at, inside, float("-inf"), WIDE)
    put(
        out_ptr, at, inside,
        tl.exp(x - tl.load(top_ptr + row)) * tl.load(share_ptr + row),
    )  # fmt: skip


@triton.jit
def products_kernel(
    y_ptr, grad_ptr, product_ptr, length, pieces,
    BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Own one piece; leave its sum of y * grad."""
    pid = tl.program_id(0)
    _, at, inside = cut(pid, pieces, length, BLOCK)
    y = widened(y_ptr, at, inside, 0.0, WIDE)
    grad = widened(grad_ptr, at, inside, 0.0, WIDE)
    tl.store(product_ptr + pid, tl.sum(y * grad, 0))


@triton.jit
def write_backward_kernel(
    y_ptr, grad_ptr, product_ptr, out_ptr, length, pieces,
    BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Own one piece: y * (grad - the row's sum of y * grad)."""
    row, at, inside = cut(tl.program_id(0), pieces, length, BLOCK)
    y = widened(y_ptr, at, inside, 0.0, WIDE)
    grad = widened(grad_ptr, at, inside, 0.0, WIDE)
    put(out_ptr, at, inside, y * (grad - tl.load(product_ptr + row)))
