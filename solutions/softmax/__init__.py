"""Softmax over any dimension, forward and backward.

    softmax(x)_i = exp(x_i - m) / sum_j exp(x_j - m),    m = max_j x_j

Forward: x read once, y written once, about 5 FLOPs an element: memory decides.
Backward: y and its gradient read once, x's gradient written once. fp16, bf16, fp32 and
fp64; exponentials and sums in fp32 (fp64 for fp64), each result rounded once. CUDA
tensors run in Triton on their GPU. **CPU tensors go to torch's own softmax**: a
fallback, right and not slow. The gradient once (no gradient of a gradient).

The rungs, in the order in which the chapter climbs them (fp32 in CUDA C++):

    naive.cu           as the formula stands: read twice, and wrong past exp(89)
    safe.cu            the maximum taken away first: right, read three times
    online_update.py   the rule that finds maximum and sum in one sweep
    online.cu          that rule by every thread, and between them: read twice
    fused.py           the row in registers, in Triton: read once
    long_rows.py       rows cut into pieces, for programs that work side by side

``kernels.py`` is what ``softmax`` launches, and ``launch.py`` chooses: rows of up to
16,384 (8,192 of fp64) stay in one program's registers, and of up to 524,288 in those
of programs that wait for each other (``side_by_side.py``); still
longer ones are cut into pieces and read twice. Sums that run across memory are taken
where they lie up to 1,024, and past that copied to lie along it.

Autocast: inside a CUDA region halves give float32, as torch does.

When not to use it: in front of a product with a matrix, as in attention, where the
weights need not be in memory at all (``solutions.flash_attention``). In front of a
cross-entropy, which wants the logarithm. In a graph that ``torch.compile`` should fuse
with its neighbours.
"""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.operators import check_tensor, operator, recorded
from solutions.softmax.launch import backward_into, forward_into

__all__ = ["softmax"]

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_HALVES = (torch.float16, torch.bfloat16)


@recorded
def softmax(
    input: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Turn numbers into shares of 1: ``exp(x - max) / sum of exp(x - max)``.

    Args:
        input: any shape; fp16, bf16, fp32 or fp64, or whatever ``dtype`` turns into
            one of these. A non-contiguous tensor is copied first, which costs one more
            pass over memory.
        dim: the dimension that sums to 1; the last one when absent.
        dtype: what input is cast to first, and what comes out; input's when absent.

    Returns:
        A tensor of input's shape and device; contiguous on a GPU. What is -inf gets 0;
        where all of a sum is -inf, or one of it is NaN or +inf, all of it is NaN, as
        in torch.

    Raises:
        TypeError: not a tensor, or of another dtype.
        ValueError: neither on a CPU nor on an NVIDIA GPU.
        IndexError: a dimension that input has not.

    Cost: 2 * n * itemsize bytes, about 5 * n FLOPs; rows of more than 524,288 numbers
    3 * n * itemsize. Backward 3 * n * itemsize, and of such rows 5 * n * itemsize.

    Source: Milakov and Gimelshein, Online normalizer calculation for softmax (2018),
    algorithms 2 and 3 and section 3.1.
    """
    dtype = _check(input, dim, dtype)
    if not input.is_cuda:
        return torch.softmax(input, dim, dtype=dtype)
    if dtype is None and input.dtype in _HALVES and torch.is_autocast_enabled("cuda"):
        dtype = torch.float32
    dtype = dtype or input.dtype
    if not (input.dtype in _HALVES and dtype == torch.float32):
        input = input.to(dtype)  # else the kernel reads halves and writes floats
    out: torch.Tensor = _softmax(input, dim % max(1, input.ndim), dtype)
    return out


@operator("softmax")
def _softmax(x: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x, dtype=dtype)
    if x.numel():
        forward_into(_three(x, dim), _three(y, dim))
    return y


@operator("softmax_backward")
def _softmax_backward(
    y: torch.Tensor, grad: torch.Tensor, dim: int, dtype: torch.dtype
) -> torch.Tensor:
    out = torch.empty_like(y, dtype=dtype)
    if y.numel():
        backward_into(*(_three(t, dim) for t in (y, grad.contiguous(), out)))
    return out


def _keep_output(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(output)
    ctx.dim, ctx.dtype = inputs[1], inputs[0].dtype


def _gradient(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    (y,) = ctx.saved_tensors
    return _softmax_backward(y, grad, ctx.dim, ctx.dtype), None, None


@_softmax.register_fake
def _(x: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


@_softmax_backward.register_fake
def _(
    y: torch.Tensor, grad: torch.Tensor, dim: int, dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty_like(y, dtype=dtype)


_softmax.register_autograd(_gradient, setup_context=_keep_output)


def _three(x: torch.Tensor, dim: int) -> torch.Tensor:
    """View a contiguous tensor as (outer, length, inner) around a dimension."""
    if not x.ndim:
        return x.view(1, 1, 1)
    return x.view(x.shape[:dim].numel(), x.shape[dim], x.shape[dim + 1 :].numel())


def _check(x: torch.Tensor, dim: int, dtype: torch.dtype | None) -> torch.dtype | None:
    """Validate once, at the boundary: kernels do not."""
    check_tensor("softmax", "input", x, None)
    if (dtype or x.dtype) not in _DTYPES:
        name = "input is" if dtype is None else "dtype is"
        raise TypeError(
            f"softmax: {name} {dtype or x.dtype}; wanted float16, bfloat16, float32 or "
            "float64: dtype=torch.float32."
        )
    dims = max(1, x.ndim)
    if not -dims <= dim < dims:
        raise IndexError(
            f"softmax: dim is {dim}, and input has shape {tuple(x.shape)}; wanted "
            f"{-dims} to {dims - 1}."
        )
    return dtype
