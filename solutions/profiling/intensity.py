"""Arithmetic intensity: what a kernel computes for each byte that it must move."""

from __future__ import annotations


# [exercise:arithmetic_intensity]
def arithmetic_intensity(flops, read, written, element_bytes):
    """Return FLOP/byte, every input read and output written once.

    flops: floating-point operations.
    read, written: elements that come from and go to global memory.
    element_bytes: size of one element: 2 for fp16, 4 for fp32.
    """
    # [hole]
    bytes_moved = (read + written) * element_bytes
    return flops / bytes_moved
    # [/hole]


# [/exercise]
