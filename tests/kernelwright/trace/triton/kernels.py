"""Triton kernels that the tracer's tests run: right ones, and some that are not."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def pick(pointer, index, mask):
    """Load through a function of one's own."""
    return tl.load(pointer + index, mask=mask)  # pick loads


@triton.jit
def twice(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Double; the mask is the guard."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)  # twice loads
    tl.store(out_ptr + i, 2 * x, mask=i < n)  # twice stores


@triton.jit
def through_helper(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Double, with a load in another function."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = pick(x_ptr, i, i < n)
    tl.store(out_ptr + i, 2 * x, mask=i < n)


@triton.jit
def transposed(x_ptr, out_ptr, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """Transpose with pointers in two dimensions, a grid in two."""
    r = tl.program_id(0) * R + tl.arange(0, R)[:, None]
    c = tl.program_id(1) * C + tl.arange(0, C)[None, :]
    inside = (r < rows) & (c < columns)
    x = tl.load(x_ptr + r * columns + c, mask=inside)
    tl.store(out_ptr + c * rows + r, x, mask=inside)  # transposed stores


@triton.jit
def block_pointers(x_ptr, out_ptr, rows, columns, B: tl.constexpr):
    """Add one, with block pointers that step to the right."""
    x = tl.make_block_ptr(x_ptr, (rows, columns), (columns, 1), (0, 0), (B, B), (1, 0))
    y = tl.make_block_ptr(
        out_ptr, (rows, columns), (columns, 1), (0, 0), (B, B), (1, 0)
    )
    for _ in range(0, 2):
        values = tl.load(x, boundary_check=(0, 1), padding_option="zero")
        tl.store(y, values + 1, boundary_check=(0, 1))  # block_pointers stores
        x = tl.advance(x, (0, B))
        y = tl.advance(y, (0, B))


@triton.jit
def unchecked_block(x_ptr, out_ptr, rows, columns, B: tl.constexpr):
    """Copy a block, and forget the boundary check of the store."""
    x = tl.make_block_ptr(x_ptr, (rows, columns), (columns, 1), (0, 0), (B, B), (1, 0))
    y = tl.make_block_ptr(
        out_ptr, (rows, columns), (columns, 1), (0, 0), (B, B), (1, 0)
    )
    values = tl.load(x, boundary_check=(0, 1), padding_option="zero")
    tl.store(y, values)  # unchecked_block stores


@triton.jit
def own_descriptors(x_ptr, out_ptr, rows, columns, B: tl.constexpr):
    """Add one, with descriptors made in the kernel."""
    x = tl.make_tensor_descriptor(x_ptr, [rows, columns], [columns, 1], [B, B])
    y = tl.make_tensor_descriptor(out_ptr, [rows, columns], [columns, 1], [B, B])
    j = tl.program_id(0) * B
    y.store([0, j], x.load([0, j]) + 1)


@triton.jit
def given_descriptors(x, y, B: tl.constexpr):
    """Add one, with descriptors made by the host."""
    j = tl.program_id(0) * B
    y.store([0, j], x.load([0, j]) + 1)


@triton.jit
def histogram(x_ptr, count_ptr, n, BLOCK: tl.constexpr):
    """Count with atomics."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.atomic_add(count_ptr + x, 1, mask=i < n)  # histogram updates


@triton.jit
def lock_all(lock_ptr, BLOCK: tl.constexpr):
    """Compare and swap, on more locks than there are."""
    tl.atomic_cas(lock_ptr + tl.arange(0, BLOCK), 0, 1)  # lock_all updates


@triton.jit
def wild_when_off(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Read far away, with these lanes off."""
    i = tl.arange(0, BLOCK)
    far = tl.where(i < n, i, -(1 << 30))
    x = tl.load(x_ptr + far, mask=i < n, other=0.0)
    tl.store(out_ptr + far, x, mask=i < n)


@triton.jit
def far_past(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Read one block too far: in memory that is somebody else's."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i + BLOCK)  # far_past loads
    tl.store(out_ptr + i, x, mask=i < n)


@triton.jit
def accumulate(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Add to an output."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    before = tl.load(out_ptr + i, mask=i < n)  # accumulate loads
    tl.store(out_ptr + i, before + tl.load(x_ptr + i, mask=i < n), mask=i < n)
    tl.store(out_ptr + i, tl.load(out_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def fails(x_ptr):
    """Raise in the middle of a launch."""
    tl.static_assert(False, "no")
    tl.store(x_ptr, 1.0)


@triton.jit
def reductions(x_ptr, out_ptr, BLOCK: tl.constexpr):
    """Use what Triton itself has written in Triton."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr, tl.sum(x, 0) + tl.max(x, 0))
    tl.store(out_ptr + 1 + i, tl.softmax(x))


@triton.jit
def bf16_sum(x_ptr, out_ptr, BLOCK: tl.constexpr):
    """Compute in bf16."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, x + x)  # bf16_sum computes


@triton.jit
def bf16_through_fp32(x_ptr, out_ptr, BLOCK: tl.constexpr):
    """Compute in fp32, as one must."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i).to(tl.float32)
    tl.store(out_ptr + i, x + x)  # bf16_through_fp32 rounds


def launch_twice(x, out, n):
    """Launch two kernels; the second reads what the first wrote."""
    twice[(2,)](x, out, n, BLOCK=16)
    accumulate[(2,)](x, out, n, BLOCK=16)


@triton.jit
def cut_off(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Cut off below 0 and above 1."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.minimum(tl.maximum(x, 0.0), 1.0), mask=i < n)


@triton.jit
def lost_update(x_ptr, out_ptr, BLOCK: tl.constexpr):
    """Add each program's numbers to the same elements, without an atomic."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + i)
    so_far = tl.load(out_ptr + i)  # lost_update loads
    tl.store(out_ptr + i, so_far + x)


@triton.jit
def in_turn(x_ptr, out_ptr, done_ptr, BLOCK: tl.constexpr):
    """Do the same; who comes counts himself first, as one that waits would."""
    tl.atomic_add(done_ptr, 1)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + i)
    so_far = tl.load(out_ptr + i)
    tl.store(out_ptr + i, so_far + x)


@triton.jit
def multiplied(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    """Multiply once as given, and once more in 32 bits."""
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    wide = tl.dot(x.to(tl.float32), y.to(tl.float32))
    tl.store(out_ptr + at, tl.dot(x, y) + wide)


@triton.jit
def first_alone(out_ptr, PROGRAMS: tl.constexpr):
    """Let the first program store for all, and every program for itself."""
    tl.store(out_ptr + tl.program_id(0), 1.0)
    if tl.program_id(0) == 0:
        for other in range(1, PROGRAMS):
            tl.store(out_ptr + PROGRAMS + other, 1.0)
