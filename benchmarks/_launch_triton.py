"""The launch benchmark's kernel in Triton, which wants a file of its own.

It is compiled from its own source, with its annotations as they stand.
"""

import triton
import triton.language as tl


@triton.jit
def affine(x, weight, bias, out, rows, columns, scale, block: tl.constexpr):
    """Scale and shift rows * columns floats: ``out = x * weight * scale + bias``."""
    i = tl.arange(0, block)
    inside = i < rows * columns
    found = tl.load(x + i, inside) * tl.load(weight + i, inside) * scale
    tl.store(out + i, found + tl.load(bias + i, inside), inside)
