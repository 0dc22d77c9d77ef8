"""Add arrays in CuPy: a kernel in C++ text, and one where CuPy writes the loop.

CuPy is imported when a function is called: it needs an NVIDIA GPU.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import cupy

_THREADS = 256
# extern "C" keeps the name plain: RawKernel finds a kernel by its C name.
_SOURCE = r"""
extern "C" __global__
void vector_add(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = x[i] + y[i];
    }
}
"""


@cache
def _raw_kernel() -> Any:
    import cupy

    return cupy.RawKernel(_SOURCE, "vector_add")


def vector_add_raw(x: cupy.ndarray, y: cupy.ndarray) -> cupy.ndarray:
    """Add two fp32 arrays with a ``cupy.RawKernel``: the launch is yours.

    Args:
        x: contiguous, float32, fewer than 2^31 - 2^20 elements.
        y: as x.

    Raises:
        ValueError: another dtype, shapes that differ, or a non-contiguous array.

    Cost: 12 * n bytes, n FLOPs.
    """
    import cupy

    _check(x, y)
    out = cupy.empty_like(x)
    if x.size:
        blocks = (x.size + _THREADS - 1) // _THREADS
        # CuPy passes a Python integer as 64 bits, and the kernel reads 32.
        _raw_kernel()((blocks,), (_THREADS,), (x, y, out, cupy.int32(x.size)))
    return out


@cache
def _elementwise() -> Any:
    import cupy

    return cupy.ElementwiseKernel("T x, T y", "T out", "out = x + y", "add_elements")


def vector_add_elementwise(x: cupy.ndarray, y: cupy.ndarray) -> cupy.ndarray:
    """Add two arrays: CuPy writes the index, the guard and the loop, and broadcasts.

    Cost: 3 * n * itemsize bytes, n FLOPs.
    """
    return _elementwise()(x, y)


def _check(x: cupy.ndarray, y: cupy.ndarray) -> None:
    for name, array in (("x", x), ("y", y)):
        if str(array.dtype) != "float32":
            raise ValueError(
                f"{name} is {array.dtype}; this kernel adds float32: "
                f"{name}.astype('float32')."
            )
        if not array.flags.c_contiguous:
            raise ValueError(
                f"{name} is not contiguous: pass cupy.ascontiguousarray({name})."
            )
        if array.size >= 2**31 - 2**20:
            raise ValueError(
                f"{name} has {array.size:,} elements; this kernel counts in 32 bits: "
                "use vector_add_elementwise."
            )
    if x.shape != y.shape:
        raise ValueError(f"x is {x.shape} and y is {y.shape}; wanted one shape.")
