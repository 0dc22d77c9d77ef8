"""Tiles of rows between memory and a Triton program: the same in every kernel.

``ptr`` holds rows of ``D`` numbers, one behind the other. A tile is its rows
``first + rows``, where ``rows`` counts within what has ``length`` of them, a head say:
what lies past the end is loaded as zeros, and never stored.
"""

# A kernel's parameters have Triton's types, which mypy does not know.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_rows(ptr, first, rows, length, D: tl.constexpr):
    """Load a tile (ROWS, D), for ``rows`` (ROWS,); zeros from ``length`` on."""
    at = (first + rows)[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(ptr + at, mask=rows[:, None] < length, other=0.0)


@triton.jit
def store_rows(ptr, first, rows, length, tile, D: tl.constexpr):
    """Store a tile (ROWS, D) in the memory's own dtype; nothing from ``length`` on."""
    at = (first + rows)[:, None] * D + tl.arange(0, D)[None, :]
    inside = rows[:, None] < length
    tl.store(ptr + at, tile.to(ptr.dtype.element_ty), mask=inside)
