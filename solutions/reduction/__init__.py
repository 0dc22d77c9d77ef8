"""Sum a tensor, or its rows along any dimensions: the ladder of chapter 4.

    sum_all(x)          = sum of all x[i]               reads n * itemsize bytes
    sum_squared(x, dim) = sum of x[i]^2 along dim       the same, writes the sums
    mean_abs(x, dim)    = mean of |x[i]| along dim      the same

Each element is read once, and next to nothing is written: the bound is the read
bandwidth. fp16, bf16, fp32 and fp64 (``sum_all`` integers too); any shape, empty ones
as torch has them; past 2^31 elements. CUDA tensors run on their GPU. CPU tensors run
the same kernels on the emulator, which is right and slow: for large ones take torch.

Accuracy: half types and fp32 are added in fp32, fp64 in fp64, integers exactly modulo
2^64; rounded once. A row's share of a thread is short and the rest is a tree, so the
error is that of pairwise addition: for 2^24 uniform floats 1e-8 on an H200, where one
addition after another loses 1e-5. Down columns a thread adds a 32nd of the length, one
after another.

Determinism: the order of the additions depends on shape, dtype and address modulo 16
bytes, on nothing else: no float is added by an atomic. The same call gives the same
bits, run after run, on any GPU; on the emulator too, but for squares, which a GPU
multiplies and adds with one rounding. Another shape of the same numbers may differ in
the last bits.

The rungs, in the order in which the chapter climbs them (fp32, 32-bit indices):

    atomic.cu        every element to one address
    interleaved.cu   a tree in shared memory, its lanes scattered
    sequential.cu    the same tree, its lanes side by side
    shuffle.cu       a warp's sum without shared memory
    in_flight.cu     several loads on their way in each thread
    single_pass.cu   one launch: the last block adds up what the others left

``rows.cu`` and ``columns.cu`` sum along one dimension of a matrix; ``any_dim.cu`` is
what the functions below launch.

When not to use it: where the sum's operand is itself computed. ``(x - y).square()
.sum()`` writes and reads what a fused kernel would never store; and torch.compile
fuses such a chain by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import kernelwright as kw
from kernelwright.operators import (
    check_tensor,
    operator,
    recorded,
    zeros_between_launches,
)

__all__ = ["mean_abs", "sum_all", "sum_squared"]

Dim = int | Sequence[int] | None

_kernel = kw.cuda.kernels(Path(__file__).parent)
_FLOATS = {
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
    torch.float32: "float",
    torch.float64: "double",
}
_INTEGERS = {
    torch.bool: "unsigned char",
    torch.uint8: "unsigned char",
    torch.int8: "signed char",
    torch.int16: "short",
    torch.int32: "int",
    torch.int64: "long long",
}
_PACK_BYTES = 16
# All of these are the best, or nearly, of what was tried on an H200: 2^30 floats and
# rows and columns of 16384 x 8192, 32768 x 1024, 4194304 x 32 and 1048576 x 128, fp32
# and bf16. They do not depend on the GPU, so that sums have the same order everywhere.
_THREADS = 256
_LOADS = 4
# Long rows: eight packs a thread, 512 threads at most, pieces of 64 KB at least (with
# shorter ones the last block's work shows) and so many that any GPU is busy.
_PIECE_THREADS = 512
_PIECES = 4096
_LEAST_PIECE_BYTES = 1 << 16
# Rows up to this many bytes are summed by a warp or less of it.
_SHORT_BYTES = 4096
_SHORT_THREADS = 128
# Columns: 8 bytes a lane. Two blocks fill an SM; more of them leave more partial sums.
_COLUMN_BYTES = 8
_COLUMN_THREADS = 1024
_COLUMN_PIECES = 264


@recorded
def sum_all(x: torch.Tensor) -> torch.Tensor:
    """Add all elements up: ``sum of x[i]``.

    Args:
        x: any shape; floating-point, or integers and bool. A tensor with gaps or
            overlaps in memory is copied first.

    Returns:
        A tensor without dimensions: x's dtype, int64 for integers. 0 of nothing.

    Raises:
        TypeError: not a tensor, or complex.
        ValueError: neither on the CPU nor on a CUDA device.

    Cost: n * itemsize bytes, n - 1 FLOPs.
    """
    check_tensor("sum_all", "x", x, {**_FLOATS, **_INTEGERS})
    result: torch.Tensor = _sum(x, "Total", list(range(x.dim())), False)
    return result


@recorded
def sum_squared(
    x: torch.Tensor, dim: Dim = None, keepdim: bool = False
) -> torch.Tensor:
    """Add squares up along dimensions: ``sum of x[i]^2``.

    Args:
        x: any shape; fp16, bf16, fp32 or fp64. A tensor with gaps or overlaps in
            memory is copied first, and so is one whose ``dim`` are not neighbours.
        dim: one or more dimensions; ``None`` or ``()`` for all.
        keepdim: whether these stay, with size 1.

    Returns:
        A new tensor of x's dtype and device. 0 where there is nothing to add.

    Raises:
        TypeError: not a tensor, or of another dtype.
        IndexError: a dimension that x has not.
        RuntimeError: a dimension named twice.
        ValueError: neither on the CPU nor on a CUDA device.

    Cost: forward n * itemsize bytes, 2 * n FLOPs; backward twice the bytes.
    """
    return _along("sum_squared", "Squares", x, dim, keepdim)


@recorded
def mean_abs(x: torch.Tensor, dim: Dim = None, keepdim: bool = False) -> torch.Tensor:
    """Average magnitudes along dimensions: ``mean of |x[i]|``.

    Args:
        x: any shape; fp16, bf16, fp32 or fp64. A tensor with gaps or overlaps in
            memory is copied first, and so is one whose ``dim`` are not neighbours.
        dim: one or more dimensions; ``None`` or ``()`` for all.
        keepdim: whether these stay, with size 1.

    Returns:
        A new tensor of x's dtype and device. NaN where there is nothing to average,
        as torch.mean has it. The gradient at 0 is 0.

    Raises:
        TypeError: not a tensor, or of another dtype.
        IndexError: a dimension that x has not.
        RuntimeError: a dimension named twice.
        ValueError: neither on the CPU nor on a CUDA device.

    Cost: forward n * itemsize bytes, n FLOPs; backward twice the bytes.
    """
    return _along("mean_abs", "Magnitudes", x, dim, keepdim)


def _along(
    function: str, operation: str, x: torch.Tensor, dim: Dim, keepdim: bool
) -> torch.Tensor:
    check_tensor(function, "x", x, _FLOATS)
    dims = list(_dimensions(function, x, dim))
    result: torch.Tensor = _sum(x, operation, dims, keepdim)
    return result


@operator("sum")
def _sum(
    x: torch.Tensor, operation: str, dims: list[int], keepdim: bool
) -> torch.Tensor:
    return _reduce(x, operation, tuple(dims), keepdim)


@operator("sum_backward")
def _sum_backward(
    x: torch.Tensor, grad: torch.Tensor, operation: str, dims: list[int]
) -> torch.Tensor:
    return _slopes(x, grad, operation, tuple(dims))


@_sum.register_fake
def _(x: torch.Tensor, operation: str, dims: list[int], keepdim: bool) -> torch.Tensor:
    sizes = enumerate(x.shape)
    kept = [1 if d in dims else n for d, n in sizes if keepdim or d not in dims]
    return x.new_empty(kept, dtype=_dtype_of_sums(x))


_sum_backward.register_fake(lambda x, grad, operation, dims: torch.empty_like(x))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, ctx.operation, ctx.dims, ctx.keepdim = inputs
    ctx.shape = x.shape
    if ctx.operation != "Total":
        ctx.save_for_backward(x)


def _gradient(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    if not ctx.keepdim:
        for dim in ctx.dims:  # in rising order
            grad = grad.unsqueeze(dim)
    if ctx.operation == "Total":
        return grad.expand(ctx.shape), None, None, None
    (x,) = ctx.saved_tensors
    if torch.is_grad_enabled():
        # Somebody wants the gradient of the gradient: torch knows how.
        return _slope_by_torch(x, ctx.operation, ctx.dims) * grad, None, None, None
    return _sum_backward(x, grad, ctx.operation, ctx.dims), None, None, None


_sum.register_autograd(_gradient, setup_context=_keep)


def _dtype_of_sums(x: torch.Tensor) -> torch.dtype:
    return torch.int64 if x.dtype in _INTEGERS else x.dtype


def _slope_by_torch(
    x: torch.Tensor, operation: str, dims: Sequence[int]
) -> torch.Tensor:
    if operation == "Squares":
        return 2 * x
    return x.sgn() / math.prod(x.shape[d] for d in dims)


@dataclass(frozen=True)
class View:
    """A tensor seen as (outer, length, inner), contiguous, ``length`` summed over.

    Args:
        data: its elements in that order.
        order: the tensor's dimensions as they lie in ``data``.
        outer, length, inner: sizes.
    """

    data: torch.Tensor
    order: tuple[int, ...]
    outer: int
    length: int
    inner: int

    @property
    def sums(self) -> int:
        """How many results there are."""
        return self.outer * self.inner


def view_for(x: torch.Tensor, dims: tuple[int, ...]) -> View:
    """See x with the summed dimensions together; copy only where that must be."""
    # Nobody asks in which order a sum is taken, so take memory as it lies.
    order = tuple(sorted(range(x.dim()), key=lambda d: -x.stride(d)))
    data = x.permute(order)
    inside = [d in dims for d in order if x.shape[d] != 1]
    together = inside == sorted(inside) or _one_run(inside)
    if not (data.is_contiguous() and together):
        kept = [d for d in range(x.dim()) if d not in dims]
        order = (*kept, *dims)
        data = x.permute(order).contiguous()
    at = [k for k, d in enumerate(order) if d in dims and x.shape[d] != 1]
    first, last = (at[0], at[-1] + 1) if at else (len(order), len(order))
    sizes = data.shape
    return View(
        data,
        order,
        math.prod(sizes[:first]),
        math.prod(sizes[first:last]),
        math.prod(sizes[last:]),
    )


def _one_run(flags: list[bool]) -> bool:
    """Say whether all that are true stand together."""
    first = flags.index(True)
    return all(flags[first : first + sum(flags)])


def _reduce(
    x: torch.Tensor, operation: str, dims: tuple[int, ...], keepdim: bool
) -> torch.Tensor:
    dtype = _dtype_of_sums(x)
    view = view_for(x, dims)
    kept = [1 if d in dims else x.shape[d] for d in view.order]
    out = torch.empty(kept, dtype=dtype, device=x.device)
    if out.numel() and not view.data.numel():
        out.fill_(math.nan if operation == "Magnitudes" else 0)
    elif out.numel():
        launch_plan(plan_for(view), view, operation, out)
    back = [view.order.index(d) for d in range(x.dim())]
    out = out.permute(back).contiguous()
    if keepdim:
        return out
    return out.reshape([x.shape[d] for d in range(x.dim()) if d not in dims])


@dataclass(frozen=True)
class Plan:
    """How a view is summed: a kernel of ``any_dim.cu`` and its launch.

    Args:
        kernel: its name with the types left open as ``{}``.
        blocks, threads: of the launch.
        groups: sums, or tiles of sums, that have a counter each.
        piece, pieces: how the length is cut among blocks.
        tiles: blocks side by side along ``inner``.
        room: elements of the accumulator in shared memory.
    """

    kernel: str
    blocks: int
    threads: int | tuple[int, int]
    groups: int = 0
    piece: int = 0
    pieces: int = 1
    tiles: int = 1
    room: int = 0


def plan_for(view: View) -> Plan:
    """Choose the kernel by the shape and the element size alone."""
    if view.inner > 1:
        return _columns_plan(view)
    itemsize = view.data.element_size()
    width = _PACK_BYTES // itemsize
    if view.length * itemsize <= _SHORT_BYTES:
        packed = not (view.length % width or view.data.data_ptr() % _PACK_BYTES)
        lanes = _lanes_for(view.length // width if packed else view.length, packed)
        name = f"sum_short<{{}}, {{}}, {lanes}, {'true' if packed else 'false'}>"
        blocks = kw.cdiv(view.outer, _SHORT_THREADS // lanes)
        return Plan(name, blocks, _SHORT_THREADS)
    threads = _power_of_two(kw.cdiv(view.length, 2 * _LOADS * width))
    threads = min(_PIECE_THREADS, max(64, threads))
    round_ = threads * _LOADS * width
    wanted = _PIECES // view.outer
    piece, pieces = _cut(view.length, wanted, round_, itemsize)
    return Plan(
        f"sum_pieces<{{}}, {{}}, {_LOADS}>",
        view.outer * pieces,
        threads,
        view.outer,
        piece,
        pieces,
    )


def _lanes_for(items: int, packed: bool) -> int:
    """Return how many lanes share a short row: two packs each, or eight elements."""
    if packed:
        return 1 if items <= 4 else min(32, _power_of_two(kw.cdiv(items, 2)))
    return min(32, _power_of_two(kw.cdiv(items, 8)))


def _columns_plan(view: View) -> Plan:
    itemsize = view.data.element_size()
    if view.inner < 32 and view.length <= 64 and view.sums >= 2**15:
        return Plan("sum_each<{}, {}>", kw.cdiv(view.sums, _THREADS), _THREADS)
    width = max(1, _COLUMN_BYTES // itemsize)
    while view.inner % width or view.data.data_ptr() % (width * itemsize):
        width //= 2
    across = min(32, _power_of_two(kw.cdiv(view.inner, width)))
    down = _COLUMN_THREADS // across
    tiles = kw.cdiv(view.inner, across * width)
    groups = view.outer * tiles
    wanted = _COLUMN_PIECES // groups
    piece, pieces = _cut(view.length, wanted, 4 * down, across * width * itemsize)
    return Plan(
        f"sum_columns<{{}}, {{}}, {width}>",
        groups * pieces,
        (across, down),
        groups,
        piece,
        pieces,
        tiles,
        _COLUMN_THREADS * width,
    )


def _cut(length: int, wanted: int, round_: int, bytes_each: int) -> tuple[int, int]:
    """Cut a length into pieces of whole rounds.

    Args:
        length: to cut.
        wanted: how many pieces at most; below 1 the length stays whole.
        round_: what a block takes at a time.
        bytes_each: of one of the length's elements.
    """
    least = kw.cdiv(_LEAST_PIECE_BYTES, bytes_each)
    piece = max(kw.cdiv(length, max(1, wanted)), least)
    piece = kw.cdiv(piece, round_) * round_
    return piece, max(1, kw.cdiv(length, piece))


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def launch_plan(plan: Plan, view: View, operation: str, out: torch.Tensor) -> None:
    """Launch a plan; out is contiguous, in the order of the view."""
    x = view.data
    c_type = {**_FLOATS, **_INTEGERS}[x.dtype]
    name = plan.kernel.format(c_type, operation)
    kernel = _kernel("any_dim", name, x.device.type)
    if x.dtype is torch.bool:
        x = x.view(torch.uint8)
    if plan.kernel.startswith("sum_short"):
        kernel[plan.blocks, plan.threads](x, out, view.outer, view.length)
        return
    if plan.kernel.startswith("sum_each"):
        kernel[plan.blocks, plan.threads](x, out, view.sums, view.length, view.inner)
        return
    wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else out.dtype
    # Of one piece nothing is left over.
    left = view.sums * plan.pieces if plan.pieces > 1 else 1
    partials = torch.empty(left, dtype=wide, device=x.device)
    arrived = zeros_between_launches(x.device, plan.groups if plan.pieces > 1 else 1)
    if plan.kernel.startswith("sum_pieces"):
        kernel[plan.blocks, plan.threads](
            x, out, partials, arrived, view.length, plan.piece, plan.pieces
        )
        return
    shared = plan.room * partials.element_size()
    kernel[plan.blocks, plan.threads, shared](
        x,
        out,
        partials,
        arrived,
        view.length,
        view.inner,
        plan.piece,
        plan.pieces,
        plan.tiles,
    )


def _slopes(
    x: torch.Tensor, grad: torch.Tensor, operation: str, dims: tuple[int, ...]
) -> torch.Tensor:
    view = view_for(x, dims)
    if not x.numel():
        return torch.empty_like(x)
    back = grad.permute(view.order).contiguous()
    out = torch.empty_like(view.data)
    n, itemsize = x.numel(), x.element_size()
    along = view.length if view.inner == 1 else view.inner
    width = _PACK_BYTES // itemsize
    pointers = (view.data, out) if view.inner == 1 else (view.data, out, back)
    while along % width or any(t.data_ptr() % (width * itemsize) for t in pointers):
        width //= 2
    index = "unsigned int" if n < 2**31 else "long long"
    same = "true" if view.inner == 1 else "false"
    name = f"slopes<{_FLOATS[x.dtype]}, {operation}, {width}, {same}, {index}>"
    kernel = _kernel("any_dim", name, x.device.type)
    blocks = kw.cdiv(n, width * _THREADS)
    kernel[blocks, _THREADS](view.data, back, out, n, view.length, view.inner)
    return out.permute([view.order.index(d) for d in range(x.dim())])


def _dimensions(function: str, x: torch.Tensor, dim: Dim) -> tuple[int, ...]:
    """Return the dimensions to sum over, from 0 and in rising order."""
    if dim is None:
        return tuple(range(x.dim()))
    named = (dim,) if isinstance(dim, int) else tuple(dim)
    if not named:
        return tuple(range(x.dim()))
    places = max(1, x.dim())
    for d in named:
        if not -places <= d < places:
            raise IndexError(
                f"{function}: x has shape {tuple(x.shape)} and no dimension {d}; "
                f"wanted {-places} to {places - 1}."
            )
    found = sorted(d % places for d in named)
    if len(set(found)) < len(found):
        raise RuntimeError(f"{function}: dim={dim} names a dimension twice.")
    return tuple(d for d in found if d < x.dim())
