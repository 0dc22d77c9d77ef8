"""``gemm``: what its arguments may be, its gradient, and where it runs."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Literal

import torch

import kernelwright as kw
from kernelwright.operators import check_tensor, operator, recorded
from solutions.tensor_cores.tiles import (
    GROUP,
    SMALL,
    Operand,
    RungName,
    launch,
    launch_rung,
    plan_for,
)

GemmKernel = Literal["auto"] | RungName

_INPUTS = (torch.float16, torch.bfloat16)
_EMULATED = 2**24  # multiplications; about a second on two cores
_MOST_SIDE = 2**31 - 2**10


@recorded
def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out_dtype: torch.dtype | None = None,
    kernel: GemmKernel = "auto",
) -> torch.Tensor:
    """Multiply matrices of fp16 or bf16, summing in fp32: ``a @ b``.

        out[..., i, j] = sum over l of a[..., i, l] * b[..., l, j]

    Args:
        a: (..., m, k), fp16 or bf16. Stored by rows or by columns, it is read in
            place; anything else, and rows that do not begin at multiples of 16
            bytes, is copied first.
        b: (..., k, n), of a's dtype and device. Leading dimensions are broadcast.
        out_dtype: of the result: that of a, or ``torch.float32``.
        kernel: ``auto``, or a rung of the chapter: one product of whole tiles.

    Returns:
        (..., m, n), contiguous. Where k is 0, zeros.

    Raises:
        TypeError: not tensors, another dtype, bf16 on a chip without it.
        ValueError: shapes or devices that do not fit.

    Cost: 2 * m * n * k FLOPs; 2 * (m * k + k * n) + itemsize * m * n bytes at least.
    """
    _check(a, b, out_dtype)
    dtype = a.dtype if out_dtype is None else out_dtype
    result: torch.Tensor = _gemm(a, b, dtype, kernel)
    return result


@operator("gemm")
def _gemm(
    a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, kernel: str
) -> torch.Tensor:
    return _product(a, b, dtype, kernel)


@_gemm.register_fake
def _(
    a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, kernel: str
) -> torch.Tensor:
    return _room(a, b, dtype)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _gradient(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    a, b = ctx.saved_tensors
    # An fp32 gradient is rounded: the tensor cores take 16 bits on both sides.
    grad = grad.to(a.dtype)
    needs_a, needs_b = ctx.needs_input_grad[:2]
    to_a = gemm(grad, b.mT).sum_to_size(a.shape) if needs_a else None
    if b.dim() == 2 and a.dim() > 2:
        # All rows of a meet one b, so its gradient is one product.
        a, grad = a.flatten(0, -2), grad.flatten(0, -2)
    to_b = gemm(a.mT, grad).sum_to_size(b.shape) if needs_b else None
    return to_a, to_b, None, None


_gemm.register_autograd(_gradient, setup_context=_keep)


def _room(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return memory for the result."""
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.new_empty((*batch, a.shape[-2], b.shape[-1]), dtype=dtype)


def _product(
    a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, kernel: str
) -> torch.Tensor:
    out = _room(a, b, dtype)
    (m, k), n, batch = a.shape[-2:], b.shape[-1], out.shape[:-2]
    if not out.numel():
        return out
    if kernel != "auto":
        launch_rung(kernel, a, b, out)
    elif not k:
        out.zero_()
    elif a.device.type == "cpu" and _emulated_cost(batch, m, n, k) > _EMULATED:
        # In fp32, as the kernel sums; rounded once.
        out.copy_(a.float() @ b.float())
    elif b.dim() == 2 and a.dim() > 2:
        # One matrix b for all: the batch is only more rows.
        _run(a.flatten(0, -2)[None], b[None], out.view(1, -1, n))
    else:
        count = math.prod(batch)
        _run(_batched(a, batch), _batched(b, batch), out.view(count, m, n))
    return out


def _batched(x: torch.Tensor, batch: torch.Size) -> torch.Tensor:
    """Return x with one leading dimension; a broadcast one has stride 0, no copy."""
    if math.prod(x.shape[:-2]) == 1:
        return x.reshape(1, *x.shape[-2:]).expand(math.prod(batch), -1, -1)
    return x.expand(*batch, *x.shape[-2:]).reshape(-1, *x.shape[-2:])


def _emulated_cost(batch: torch.Size, m: int, n: int, k: int) -> int:
    down, across = SMALL.tiles(m, n)
    tile = math.prod(SMALL.block) * kw.cdiv(k, SMALL.depth) * SMALL.depth
    return math.prod(batch) * down * across * tile


def _run(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Multiply (batches, m, k) by (batches, k, n)."""
    batches, m, n = out.shape
    plan = plan_for(m, n, batches, *_machine(out.device))
    launch(plan, _operand(a), _operand(b), out, m, n, a.shape[-1])


def _operand(x: torch.Tensor) -> Operand:
    """Describe a batch of matrices; copy it where the kernel cannot read it."""
    batch = x.stride(0) if x.shape[0] > 1 else 0
    for by_rows in (True, False):
        along, across = (-1, -2) if by_rows else (-2, -1)
        # A matrix of one row has any pitch: its own length, rounded up, will do.
        single = x.shape[across] == 1
        pitch = _rounded(x.shape[along]) if single else x.stride(across)
        unit = x.stride(along) == 1 or x.shape[along] == 1
        whole = pitch % GROUP == 0 and batch % GROUP == 0 and x.data_ptr() % 16 == 0
        if unit and whole and pitch >= x.shape[along]:
            return Operand(_memory(x), by_rows, pitch, batch)
    by_columns = x.stride(-2) == 1 and x.stride(-1) != 1
    return _padded(x.mT, False) if by_columns else _padded(x, True)


def _memory(x: torch.Tensor) -> torch.Tensor:
    """Return the stretch of memory that a view spans, as one row."""
    steps = zip(x.shape, x.stride(), strict=True)
    return x.as_strided((1 + sum((size - 1) * stride for size, stride in steps),), (1,))


def _padded(x: torch.Tensor, by_rows: bool) -> Operand:
    """Copy matrices into rows of whole groups; what is behind a row is never read."""
    matrices = 1 if x.stride(0) == 0 else x.shape[0]
    rows, columns = x.shape[-2:]
    pitch = _rounded(columns)
    copy = torch.empty(matrices, rows, pitch, dtype=x.dtype, device=x.device)
    copy[..., :columns] = x[:matrices]
    return Operand(copy, by_rows, pitch, rows * pitch if matrices > 1 else 0)


def _rounded(length: int) -> int:
    return kw.cdiv(length, GROUP) * GROUP


@cache
def _machine(device: torch.device) -> tuple[int, int]:
    """Return the multiprocessors, and the shared memory that a block may ask for."""
    if device.type == "cpu":
        return 0, 227 * 1024
    properties = torch.cuda.get_device_properties(device)
    limit = getattr(properties, "shared_memory_per_block_optin", 48 * 1024)
    return properties.multi_processor_count, int(limit)


def _check(a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype | None) -> None:
    """Validate once, at the boundary: kernels do not."""
    for name, x in (("a", a), ("b", b)):
        check_tensor("gemm", name, x, None)
        if x.dtype not in _INPUTS:
            raise TypeError(
                f"gemm: {name} is {x.dtype}; wanted torch.float16 or torch.bfloat16, "
                "which tensor cores multiply here. For float32 take solutions.matmul, "
                f"or {name}.bfloat16()."
            )
        if x.dim() < 2:
            raise ValueError(
                f"gemm: {name} has shape {tuple(x.shape)}; wanted at least two "
                f"dimensions: {name}[None] makes a row of a vector."
            )
        if max(x.shape[-2:]) > _MOST_SIDE:
            raise ValueError(
                f"gemm: {name} is {tuple(x.shape)}; a side may have at most "
                f"{_MOST_SIDE:,} elements: cut it into pieces."
            )
    if a.dtype != b.dtype or a.device != b.device:
        raise TypeError(
            f"gemm: a is {a.dtype} on {a.device} and b {b.dtype} on {b.device}; "
            "wanted the same: b.to(a)."
        )
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"gemm: a is {tuple(a.shape)} and b {tuple(b.shape)}; a's last dimension "
            f"({a.shape[-1]}) must be b's last but one ({b.shape[-2]})."
        )
    try:
        torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError:
        raise ValueError(
            f"gemm: a is {tuple(a.shape)} and b {tuple(b.shape)}; their leading "
            "dimensions do not broadcast."
        ) from None
    if out_dtype not in (None, a.dtype, torch.float32):
        raise TypeError(
            f"gemm: out_dtype is {out_dtype}; wanted {a.dtype} or torch.float32."
        )
    if a.is_cuda and torch.cuda.get_device_capability(a.device) < (8, 0):
        _check_old_chip(a)


def _check_old_chip(a: torch.Tensor) -> None:
    name = torch.cuda.get_device_name(a.device)
    if torch.cuda.get_device_capability(a.device) < (7, 5):
        raise TypeError(
            f"gemm: {name} is older than compute capability 7.5 and has no ldmatrix; "
            "use a @ b."
        )
    if a.dtype == torch.bfloat16:
        raise TypeError(
            f"gemm: {name} has no bf16 tensor cores (they came with compute "
            "capability 8.0); multiply a.half() and b.half()."
        )
