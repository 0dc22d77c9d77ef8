"""Rows in pieces, in one launch: a program keeps its piece while others do theirs.

Two launches read every piece twice, since nothing of a program outlives it. Here it
stays: it leaves the piece's sums in memory, waits until the whole row's are there, and
writes from registers. So each number is read once, however long the row.

A program that waits for one that has not begun would wait for ever, if it sat where
that one should run. So a program takes its place in the order in which programs begin
(``_ticket``), not its number in the grid: whoever is waited for has begun or is next.
What it takes is that a row's pieces all fit on the GPU together; ``launch`` sees to it.
Launches on several streams take room from each other, each for one row that is not all
there: at 9 programs an SM, an H200 has room for 18 rows of 64 pieces. To run more
such launches at once, cut the rows yourself, or set ``launch.MOST_TOGETHER`` lower.

While a program waits, the memory does nothing for it. What keeps the memory busy is
others, so as many as possible must fit on an SM, and what counts is how much of the
input they hold together: to write 16 KB, a program takes some 6 us from its first load
to its last store, and an H200 reads 16 KB an SM in 1 us. So a piece is kept as it was
loaded, in 16-bit numbers two to a register, and what is computed from it on the way
is computed again (``_kept``): 9 programs in the place of 4, and 0.82 of a copy in the
place of 0.69, where each number costs two exponentials.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _ticket(arrived_ptr, rows):
    """Return how many programs began before; counted past the rows."""
    return tl.atomic_add(arrived_ptr + rows, 1, sem="relaxed")


@triton.jit
def _meet(arrived_ptr, row, pieces):
    """Say that this piece's sums are there; wait for the row's."""
    tl.debug_barrier()
    here = tl.atomic_add(arrived_ptr + row, 1, sem="acq_rel") + 1
    while here < pieces:
        here = tl.atomic_add(arrived_ptr + row, 0, sem="acquire")


@triton.jit
def _kept(x, PACK: tl.constexpr):
    """Return x, as if it came from somewhere else.

    A compiler that sees the same number widened before and after a wait keeps the wide
    one: twice the registers. The instruction copies PACK numbers, a register; 0 for
    none, since the interpreter knows no machine code.
    """
    if PACK > 0:
        x = tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=PACK
        )
    return x


@triton.jit
def _piece(place, pieces, length, BLOCK: tl.constexpr):
    """Return a piece's row, where it begins, its numbers, and which the row has."""
    row = (place // pieces).to(tl.int64)
    first = place % pieces * BLOCK
    c = tl.arange(0, BLOCK)
    return row, row * length + first, c, c < length - first


# A program's number of pieces is not worth another compilation.
@triton.jit(do_not_specialize=["pieces"])
def forward_kernel(
    x_ptr, maximum_ptr, total_ptr, arrived_ptr, out_ptr, rows, length, pieces,
    BLOCK: tl.constexpr, ROOM: tl.constexpr, WIDE: tl.constexpr, PACK: tl.constexpr,
):  # fmt: skip
    """Own one piece: read it, and write exp(x - row's maximum) / row's total."""
    place = _ticket(arrived_ptr, rows)
    row, begin, c, inside = _piece(place, pieces, length, BLOCK)
    x = tl.load(x_ptr + begin + c, mask=inside, other=float("-inf"))
    maximum = tl.max(x.to(WIDE), 0)
    base = tl.where(maximum == float("-inf"), 0.0, maximum)  # -inf - -inf is NaN
    x = _kept(x, PACK)
    tl.store(maximum_ptr + place, maximum)
    tl.store(total_ptr + place, tl.sum(tl.exp(x.to(WIDE) - base), 0))
    _meet(arrived_ptr, row, pieces)
    x = _kept(x, PACK)
    p = tl.arange(0, ROOM)
    theirs = row * pieces + p
    # From L2: a line of L1 may be older than what the others left in it.
    maxima = tl.load(
        maximum_ptr + theirs, mask=p < pieces, other=float("-inf"), cache_modifier=".cg"
    )
    totals = tl.load(
        total_ptr + theirs, mask=p < pieces, other=0.0, cache_modifier=".cg"
    )
    top = tl.max(maxima, 0)
    # Of nothing but -inf, maxima - top is NaN, and so is the row, as it should be.
    share = 1 / tl.sum(totals * tl.exp(maxima - top), 0)
    y = tl.exp(x.to(WIDE) - top) * share
    tl.store(out_ptr + begin + c, y.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["pieces"])
def backward_kernel(
    y_ptr, grad_ptr, product_ptr, arrived_ptr, out_ptr, rows, length, pieces,
    BLOCK: tl.constexpr, ROOM: tl.constexpr, WIDE: tl.constexpr,
    PACK_Y: tl.constexpr, PACK_GRAD: tl.constexpr,
):  # fmt: skip
    """Own one piece: y * (grad - the row's sum of y * grad)."""
    place = _ticket(arrived_ptr, rows)
    row, begin, c, inside = _piece(place, pieces, length, BLOCK)
    y = tl.load(y_ptr + begin + c, mask=inside, other=0.0)
    grad = tl.load(grad_ptr + begin + c, mask=inside, other=0.0)
    tl.store(product_ptr + place, tl.sum(y.to(WIDE) * grad.to(WIDE), 0))
    _meet(arrived_ptr, row, pieces)
    y, grad = _kept(y, PACK_Y), _kept(grad, PACK_GRAD)
    p = tl.arange(0, ROOM)
    products = tl.load(
        product_ptr + row * pieces + p, mask=p < pieces, other=0.0, cache_modifier=".cg"
    )
    slope = y.to(WIDE) * (grad.to(WIDE) - tl.sum(products, 0))
    tl.store(out_ptr + begin + c, slope.to(out_ptr.dtype.element_ty), mask=inside)
