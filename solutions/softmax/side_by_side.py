"""Rows in pieces, in one launch: a program keeps its piece while others do theirs.

Two launches read every piece twice, since nothing of a program outlives it. Here it
stays: it leaves the piece's sums in memory, waits until the whole row's are there, and
writes from registers. So each number is read once, however long the row.

A program that waits for one that has not begun would wait for ever, if it sat where
that one should run. So a program takes its place in the order in which programs begin
(``_ticket``), not its number in the grid: whoever is waited for has begun or is next.
What it takes is that a row's pieces all fit on the GPU together; ``launch`` sees to it.
Launches on several streams take room from each other, each for one row that is not all
there: at 4 programs an SM, an H200 has room for eight rows of 64 pieces. To run more
such launches at once, cut the rows yourself, or set ``launch.MOST_TOGETHER`` lower.
"""

from __future__ import annotations

import triton
import triton.language as tl

from solutions.softmax.kernels import cut, put, weights_of, widened


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
def forward_kernel(
    x_ptr, maximum_ptr, total_ptr, arrived_ptr, out_ptr, rows, length, pieces,
    BLOCK: tl.constexpr, ROOM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Own one piece: read it, and write exp(x - row's maximum) / row's total."""
    place = _ticket(arrived_ptr, rows)
    row, at, inside = cut(place, pieces, length, BLOCK)
    maximum, weight = weights_of(widened(x_ptr, at, inside, float("-inf"), WIDE))
    tl.store(maximum_ptr + place, maximum)
    tl.store(total_ptr + place, tl.sum(weight, 0))
    _meet(arrived_ptr, row, pieces)
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
    total = tl.sum(totals * tl.exp(maxima - top), 0)
    put(out_ptr, at, inside, weight * (tl.exp(maximum - top) / total))


@triton.jit
def backward_kernel(
    y_ptr, grad_ptr, product_ptr, arrived_ptr, out_ptr, rows, length, pieces,
    BLOCK: tl.constexpr, ROOM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Own one piece: y * (grad - the row's sum of y * grad)."""
    place = _ticket(arrived_ptr, rows)
    row, at, inside = cut(place, pieces, length, BLOCK)
    y = widened(y_ptr, at, inside, 0.0, WIDE)
    grad = widened(grad_ptr, at, inside, 0.0, WIDE)
    tl.store(product_ptr + place, tl.sum(y * grad, 0))
    _meet(arrived_ptr, row, pieces)
    p = tl.arange(0, ROOM)
    products = tl.load(
        product_ptr + row * pieces + p, mask=p < pieces, other=0.0, cache_modifier=".cg"
    )
    put(out_ptr, at, inside, y * (grad - tl.sum(products, 0)))
