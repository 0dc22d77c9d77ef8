"""Add, and scale and add, arrays of any length: the ladder of chapter 1.

    add_one(x)[i]     = x[i] + 1             8 bytes and 1 FLOP an element (fp32)
    vector_add(x, y)  = x[i] + y[i]         12 bytes and 1 FLOP
    saxpy(a, x, y)    = a * x[i] + y[i]     12 bytes and 2 FLOPs

Every kernel here is bound by memory: an H200 could do 160 FLOPs in the time that
it takes to move 12 bytes. fp16, bf16, fp32 and fp64; CPU tensors run on the
emulator, CUDA tensors on their GPU. Gradients flow as through torch.add.

The rungs, in the order in which the chapter climbs them (fp32, 32-bit indices):

    add_one.cu       one thread an element, exactly as many threads as elements
    guarded.cu       any length: threads past the end do nothing
    grid_stride.cu   any number of threads: each takes every stride-th element
    vectorized.cu    four elements a thread, moved by 128-bit instructions

and ``any_dtype.cu``, which is what the functions below launch by default: the last
two ideas for every dtype, with 64-bit indices. ``triton_add`` and ``cupy_add`` hold
the same work in Triton and CuPy.

When not to use it: never for an addition between other element-wise work. A kernel
of its own reads and writes all of its data; fused into its neighbour the addition
is free. And ``torch.add`` is as fast: this family is here to be read.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch

import kernelwright as kw
from kernelwright.operators import (
    check_tensor,
    mark_written,
    operator,
    recorded,
    traced,
)

__all__ = ["add_one", "saxpy", "vector_add"]

AddKernel = Literal["any_dtype", "guarded", "vectorized"]
SaxpyKernel = Literal["any_dtype", "grid_stride"]

_kernel = kw.cuda.kernels(Path(__file__).parent)
_CTYPES = {
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
    torch.float32: "float",
    torch.float64: "double",
}
_THREADS = 256
_PACK_BYTES = 16
# Measured on an H200 (benchmarks/vector_add.py, rows packed_stride_*): 16 blocks an SM
# reach 97% of copy bandwidth, 64 reach 100% and 256 reach 102%: an SM that is early
# finds more to do.
_BLOCKS_PER_SM = 256
_BLOCKS_ON_CPU = 64
# Past this, the rungs' 32-bit ``blockIdx.x * blockDim.x + threadIdx.x`` may wrap.
_MOST_INT_ELEMENTS = 2**31 - 2**20


@recorded
def add_one(x: torch.Tensor) -> torch.Tensor:
    """Add one to every element: ``out[i] = x[i] + 1``.

    Args:
        x: any shape; fp16, bf16, fp32 or fp64. A non-contiguous tensor is copied
            first, which costs one more pass over memory.

    Returns:
        A new contiguous tensor of x's shape, dtype and device.

    Raises:
        TypeError: not a tensor, or of another dtype.

    Cost: 2 * n * itemsize bytes, n FLOPs.
    """
    _check("add_one", x=x)
    result: torch.Tensor = _add_one(x)
    return result


@recorded
def vector_add(
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    kernel: AddKernel = "any_dtype",
) -> torch.Tensor:
    """Add two tensors: ``out[i] = x[i] + y[i]``.

    Args:
        x: any shape; fp16, bf16, fp32 or fp64. A non-contiguous tensor is copied
            first, which costs one more pass over memory.
        y: shape, dtype and device of x; nothing is broadcast.
        out: contiguous, as x; made when absent. It must not overlap x or y.
        kernel: ``any_dtype``, or the rung to run: ``guarded``, ``vectorized``
            (fp32 and fewer than 2^31 - 2^20 elements).

    Returns:
        ``out``.

    Raises:
        TypeError: not tensors, or of another dtype.
        ValueError: shapes, dtypes or devices that differ; a rung that cannot.

    Cost: 3 * n * itemsize bytes, n FLOPs.
    """
    _check("vector_add", x=x, y=y)
    if out is not None:
        _check_out("vector_add", x, y, out)
        if traced(x, y, out):
            return out.copy_(_add(x, y, kernel))
        _add_into(x, y, kernel, out)
        mark_written(out)
        return out
    result: torch.Tensor = _add(x, y, kernel)
    return result


def saxpy(
    a: float,
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    kernel: SaxpyKernel = "any_dtype",
) -> torch.Tensor:
    """Scale and add: ``out[i] = a * x[i] + y[i]``, rounded once to the dtype.

    Args:
        a: a number; the product is taken in fp32 (fp64 for fp64 tensors).
        x: as in ``vector_add``.
        y: as x.
        out: contiguous, as x; made when absent. It must not overlap x or y.
        kernel: ``any_dtype``, or the rung ``grid_stride`` (fp32, fewer than
            2^31 - 2^20 elements).

    Returns:
        ``out``.

    Raises:
        TypeError: not tensors, or of another dtype.
        ValueError: shapes, dtypes or devices that differ; a rung that cannot.

    Cost: 3 * n * itemsize bytes, 2 * n FLOPs.
    """
    return _scaled_sum(float(a), x, y, out, kernel)


@recorded(varying=("a",))
def _scaled_sum(
    a: float,
    x: torch.Tensor,
    y: torch.Tensor,
    out: torch.Tensor | None,
    kernel: str,
) -> torch.Tensor:
    _check("saxpy", x=x, y=y)
    if out is not None:
        _check_out("saxpy", x, y, out)
        if traced(x, y, out):
            return out.copy_(_saxpy(a, x, y, kernel))
        _saxpy_into(a, x, y, kernel, out)
        mark_written(out)
        return out
    result: torch.Tensor = _saxpy(a, x, y, kernel)
    return result


@operator("add_one")
def _add_one(x: torch.Tensor) -> torch.Tensor:
    return _add_one_into(x, _like(x))


@operator("vector_add")
def _add(x: torch.Tensor, y: torch.Tensor, kernel: str) -> torch.Tensor:
    return _add_into(x, y, kernel, _like(x))


@operator("saxpy", varying=("a",))
def _saxpy(a: float, x: torch.Tensor, y: torch.Tensor, kernel: str) -> torch.Tensor:
    return _saxpy_into(a, x, y, kernel, _like(x))


def _keep_factor(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.a = inputs[0]


_add_one.register_fake(lambda x: _like(x))
_add.register_fake(lambda x, y, kernel: _like(x))
_saxpy.register_fake(lambda a, x, y, kernel: _like(x))
_add_one.register_autograd(lambda ctx, grad: grad)
_add.register_autograd(lambda ctx, grad: (grad, grad, None))
_saxpy.register_autograd(
    lambda ctx, grad: (None, ctx.a * grad, grad, None),
    setup_context=_keep_factor,
)


def _add_one_into(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    x, n = x.contiguous(), x.numel()
    if n:
        kernel, packed = _any_dtype("add_one", x, out)
        kernel[_blocks(x, packed), _THREADS](x, out, n)
    return out


def _add_into(
    x: torch.Tensor, y: torch.Tensor, kernel: str, out: torch.Tensor
) -> torch.Tensor:
    x, y, n = x.contiguous(), y.contiguous(), x.numel()
    if kernel == "any_dtype":
        chosen, packed = _any_dtype("add", x, y, out)
    elif kernel == "guarded":
        chosen, packed = _rung(kernel, "vector_add", x), False
    elif kernel == "vectorized":
        chosen, packed = _rung(kernel, "vector_add_vec4", x), True
        if not _aligned(x, y, out):
            raise ValueError(
                "vector_add: kernel='vectorized' needs addresses that are multiples "
                "of 16 bytes, and a slice such as x[1:] has none: pass x.clone(), or "
                "leave kernel= away."
            )
    else:
        raise ValueError(
            f"vector_add: no kernel {kernel!r}; wanted any_dtype, guarded or "
            "vectorized."
        )
    if n:
        chosen[_blocks(x, packed), _THREADS](x, y, out, n)
    return out


def _saxpy_into(
    a: float, x: torch.Tensor, y: torch.Tensor, kernel: str, out: torch.Tensor
) -> torch.Tensor:
    x, y, n = x.contiguous(), y.contiguous(), x.numel()
    if kernel == "any_dtype":
        chosen, packed = _any_dtype("saxpy", x, y, out)
    elif kernel == "grid_stride":
        chosen, packed = _rung(kernel, "saxpy", x), False
    else:
        raise ValueError(
            f"saxpy: no kernel {kernel!r}; wanted any_dtype or grid_stride."
        )
    if n:
        blocks = min(_blocks(x, packed), _most_blocks(x.device))
        chosen[blocks, _THREADS](a, x, y, out, n)
    return out


def _any_dtype(what: str, *tensors: torch.Tensor) -> tuple[kw.cuda.Kernel, bool]:
    """Choose 16-byte packs, or single elements where an address forbids them."""
    packed = _aligned(*tensors)
    width = "packed" if packed else "scalar"
    x = tensors[0]
    name = f"{width}_{what}<{_CTYPES[x.dtype]}>"
    return _kernel("any_dtype", name, x.device.type), packed


def _rung(stem: str, name: str, x: torch.Tensor) -> kw.cuda.Kernel:
    if x.dtype != torch.float32 or x.numel() >= _MOST_INT_ELEMENTS:
        raise ValueError(
            f"kernel={stem!r} is a rung of the chapter: float32 and fewer than "
            f"{_MOST_INT_ELEMENTS:,} elements; got {x.dtype} and {x.numel():,}. Leave "
            "kernel= away."
        )
    return _kernel(stem, name, x.device.type)


@cache
def _most_blocks(device: torch.device) -> int:
    if device.type != "cuda":
        return _BLOCKS_ON_CPU
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    return _BLOCKS_PER_SM * sms


def _blocks(x: torch.Tensor, packed: bool) -> int:
    """Return how many blocks give each pack (or element) a thread of its own."""
    width = _PACK_BYTES // x.element_size() if packed else 1
    return max(1, math.ceil(x.numel() / (width * _THREADS)))


def _aligned(*tensors: torch.Tensor) -> bool:
    return all(t.data_ptr() % _PACK_BYTES == 0 for t in tensors)


def _check(function: str, **tensors: torch.Tensor) -> None:
    """Validate once, at the boundary: kernels do not."""
    for name, tensor in tensors.items():
        check_tensor(function, name, tensor, _CTYPES)
    first, *others = tensors.items()
    for name, tensor in others:
        for what in ("shape", "dtype", "device"):
            got, wanted = getattr(tensor, what), getattr(first[1], what)
            if got != wanted:
                raise ValueError(
                    f"{function}: {name} has {what} {_plain(got)} and {first[0]} has "
                    f"{_plain(wanted)}; they must be the same: {_MENDS[what]}"
                )


_MENDS = {
    "shape": "nothing is broadcast here; use y.expand_as(x).",
    "dtype": "use y.to(x.dtype).",
    "device": "use y.to(x.device).",
}


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, torch.Size) else value


def _like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _check_out(
    function: str, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor
) -> None:
    _check(function, x=x, out=out)
    if not out.is_contiguous():
        raise ValueError(
            f"{function}: out is not contiguous (strides {out.stride()}); leave out= "
            "away, or copy the result into it."
        )
    wants_grad = any(t.requires_grad for t in (x, y, out))
    if torch.is_grad_enabled() and wants_grad:
        raise ValueError(
            f"{function}: out= cannot carry a gradient; leave it away, or call under "
            "torch.no_grad()."
        )
