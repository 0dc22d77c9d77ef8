"""Add arrays in Triton: one program a block of elements, the mask is the guard.

The same work as the CUDA C++ beside it. What Triton decides by itself: which thread
takes which element, how wide a load is, how many are in flight.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK = 1024


# [exercise:vector_add_triton]
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Add one block of BLOCK elements; this is what one program runs."""
    # [hole]
    first = tl.program_id(0) * BLOCK
    i = first + tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(x_ptr + i, mask=inside)
    y = tl.load(y_ptr + i, mask=inside)
    tl.store(out_ptr + i, x + y, mask=inside)
    # [/hole]


def vector_add_triton(x, y):
    """Return x + y for two contiguous tensors of one shape."""
    out = torch.empty_like(x)
    n = x.numel()
    # [hole]
    if n > 0:
        programs = triton.cdiv(n, 1024)
        add_kernel[(programs,)](x, y, out, n, BLOCK=1024)
    # [/hole]
    return out


# [/exercise]


@triton.jit
def _saxpy_kernel(a_ptr, x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    # Widened first: past 2^31 elements a 32-bit offset wraps.
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    a = tl.load(a_ptr)
    # In a's type, fp32 at least: the interpreter's bf16 arithmetic is wrong.
    x = tl.load(x_ptr + i, mask=inside).to(a.dtype)
    y = tl.load(y_ptr + i, mask=inside).to(a.dtype)
    tl.store(out_ptr + i, a * x + y, mask=inside)


@triton.jit
def _add_scalar_kernel(a_ptr, x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    a = tl.load(a_ptr)
    x = tl.load(x_ptr + i, mask=inside).to(a.dtype)
    tl.store(out_ptr + i, x + a, mask=inside)


def saxpy(a: float, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Scale and add: ``out[i] = a * x[i] + y[i]``; as ``solutions.vector_add.saxpy``.

    Args:
        a: a number.
        x: contiguous; fp16, bf16, fp32 or fp64.
        y: shape, dtype and device of x.

    Raises:
        ValueError: tensors that differ or are not contiguous.

    Cost: 3 * n * itemsize bytes, 2 * n FLOPs.
    """
    _check(x, y)
    out = torch.empty_like(x)
    n = x.numel()
    if n:
        grid = (triton.cdiv(n, _BLOCK),)
        _saxpy_kernel[grid](_scalar(a, x), x, y, out, n, BLOCK=_BLOCK)
    return out


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Add two tensors of any dtype and length; 3 * n * itemsize bytes, n FLOPs."""
    return saxpy(1.0, x, y)


def add_one(x: torch.Tensor) -> torch.Tensor:
    """Add one to every element; 2 * n * itemsize bytes, n FLOPs."""
    _check(x)
    out = torch.empty_like(x)
    n = x.numel()
    if n:
        grid = (triton.cdiv(n, _BLOCK),)
        _add_scalar_kernel[grid](_scalar(1.0, x), x, out, n, BLOCK=_BLOCK)
    return out


def _scalar(a: float, x: torch.Tensor) -> torch.Tensor:
    """Put a number into memory: as a plain argument Triton rounds it to fp32."""
    wide = torch.promote_types(x.dtype, torch.float32)
    return torch.full((), a, dtype=wide, device=x.device)


def _check(*tensors: torch.Tensor) -> None:
    first = tensors[0]
    for tensor in tensors:
        if not tensor.is_contiguous():
            raise ValueError(
                f"a tensor with strides {tensor.stride()} is not contiguous: pass "
                "tensor.contiguous()."
            )
        if (tensor.shape, tensor.dtype, tensor.device) != (
            first.shape,
            first.dtype,
            first.device,
        ):
            raise ValueError(
                f"got {tensor.dtype} {tuple(tensor.shape)} on {tensor.device} beside "
                f"{first.dtype} {tuple(first.shape)} on {first.device}: shape, dtype "
                "and device must be the same."
            )
