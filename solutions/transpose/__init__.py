"""Transpose the last two dimensions: the ladder of chapter 2.

    transpose(x)[..., c, r] = x[..., r, c]

No arithmetic at all: every element is read once and written once, so the bound is
a copy of the same bytes. What makes it hard is that neighbours in x are a whole row
apart in out. Elements of 1, 2, 4 and 8 bytes, whatever they mean; CPU tensors run on
the emulator, CUDA tensors on their GPU. Gradients flow as through ``x.mT``.

The rungs, in the order in which the chapter climbs them (4-byte elements, a single
matrix, 32-bit indices):

    naive.cu       one thread an element: neighbours read, writes scattered
    tiled.cu       through a 32 x 32 tile in shared memory: both sides coalesced
    padded.cu      the tile with 33 columns: no bank conflicts
    swizzled.cu    128-bit loads and stores, conflicts avoided by an XOR

``any_size.cu`` is what ``transpose`` launches by default: squares of packs, turned in
registers and handed over through a swizzled tile, for every element size, batches and
64-bit indices; and a plain tile for the shapes that packs do not fit.
``coalesced_copy.cu`` is the chapter's first step.

When not to use it: where the consumer can read the other layout. ``x.mT`` is a view
and costs nothing, and a matrix multiplication takes either. Where rows or columns are
no multiple of a pack, pad them if you can: odd shapes reach 0.7 of copy bandwidth on an
H200, whole packs 0.96.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

import kernelwright as kw
from kernelwright.operators import (
    check_tensor,
    mark_written,
    operator,
    recorded,
    traced,
)

__all__ = ["transpose"]

TransposeKernel = Literal[
    "auto", "naive", "tiled", "padded", "swizzled", "registers", "staged", "any"
]

_kernel = kw.cuda.kernels(Path(__file__).parent)
# The bits are moved as they are: what they mean does not matter.
_ELEMENTS = {
    1: ("signed char", torch.int8),
    2: ("short", torch.int16),
    4: ("int", torch.int32),
    8: ("long long", torch.int64),
}
_RUNG_BLOCKS = {
    "naive": (32, 8),
    "tiled": (32, 8),
    "padded": (32, 8),
    "swizzled": (8, 8),
}
# Past this, the rungs' 32-bit indices may wrap.
_MOST_RUNG_ELEMENTS = 2**31 - 2**20
_ANY_SIDE = 64
_THIN = 8  # packs


@dataclass(frozen=True)
class Plan:
    """A kernel of ``any_size.cu`` and how it is launched.

    Args:
        expression: its name, with the element's type left open as ``{}``.
        threads: threads of a block.
        rows: rows of x that a block covers, in packs.
        columns: the same for columns.
        down: whether blocks go down a column of tiles, or along a row.
    """

    expression: str
    threads: int
    rows: int
    columns: int
    down: bool = True


def registers_plan(
    lane_rows: int, warp_rows: int, warp_columns: int, *, down: bool = True
) -> Plan:
    """Return the plan of ``transpose_registers`` for a shape of warp and block."""
    return Plan(
        f"transpose_registers<{{}}, {lane_rows}, {warp_rows}, {warp_columns}>",
        32 * warp_rows * warp_columns,
        warp_rows * lane_rows,
        warp_columns * (32 // lane_rows),
        down,
    )


def staged_plan(side: int, *, down: bool = True) -> Plan:
    """Return the plan of ``transpose_staged`` for a tile of side x side squares."""
    return Plan(f"transpose_staged<{{}}, {side}>", side * side, side, side, down)


# The best of 46 plans on an H200 (benchmarks/transpose.py, sweeps): 0.96 of copy
# bandwidth for bf16 and 0.98 for fp32. Along a row instead of down: 0.95, both.
_STAGED = staged_plan(16)
_REGISTERS = registers_plan(4, 2, 4)


def plan_for(rows: int, columns: int, itemsize: int) -> Plan:
    """Choose the plan for a shape: where a staged tile would be mostly empty, lanes
    go along the longer side, each with a square in its registers.
    """
    down, across = (side // pack_width(itemsize) for side in (rows, columns))
    if across < _THIN:
        return registers_plan(32 // _power_of_two(across), 4, 1)
    if down < _THIN:
        return registers_plan(_power_of_two(down), 1, 4)
    return _STAGED


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def pack_width(itemsize: int) -> int:
    """Return how many elements make a pack: 16 bytes of them, or 8 single bytes."""
    return 8 if itemsize == 1 else 16 // itemsize


@recorded
def transpose(
    x: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    kernel: TransposeKernel = "auto",
) -> torch.Tensor:
    """Transpose the last two dimensions: ``out[..., c, r] = x[..., r, c]``.

    Args:
        x: (..., rows, columns); elements of 1, 2, 4 or 8 bytes. A tensor that is
            neither contiguous nor a transposed view is copied first.
        out: contiguous (..., columns, rows), of x's dtype and device; made when
            absent. It must not overlap x.
        kernel: ``auto``, or the one to run. The rungs ``naive``, ``tiled``,
            ``padded`` and ``swizzled`` take one matrix of 4-byte elements with
            fewer than 2^31 - 2^20 of them.

    Returns:
        ``out``: the elements moved, not a view.

    Raises:
        TypeError: not a tensor, or elements of another size.
        ValueError: fewer than two dimensions; a kernel or an out that do not fit.

    Cost: 2 * n * itemsize bytes, no FLOPs.
    """
    _check(x)
    if out is None:
        result: torch.Tensor = _transpose(x, kernel)
        return result
    _check_out(x, out)
    if traced(x, out):
        return out.copy_(_transpose(x, kernel))
    _transpose_into(x, out, kernel)
    mark_written(out)
    return out


def _turned(x: torch.Tensor) -> torch.Tensor:
    """Return memory for the result."""
    return x.new_empty((*x.shape[:-2], x.shape[-1], x.shape[-2]))


@operator("transpose")
def _transpose(x: torch.Tensor, kernel: str) -> torch.Tensor:
    return _transpose_into(x, _turned(x), kernel)


_transpose.register_fake(lambda x, kernel: _turned(x))
_transpose.register_autograd(lambda ctx, grad: (transpose(grad), None))


def _transpose_into(x: torch.Tensor, out: torch.Tensor, kernel: str) -> torch.Tensor:
    if not x.numel():
        return out
    if kernel == "auto" and x.mT.is_contiguous():
        # The elements lie in the right order already: this is a copy.
        return out.copy_(x.mT)
    x = x.contiguous()
    c_type, dtype = _ELEMENTS[x.element_size()]
    bits, turned = x.view(dtype), out.view(dtype)
    if kernel in _RUNG_BLOCKS:
        _launch_rung(kernel, bits, turned)
        return out
    wide = packs_fit(x, out)
    if kernel == "auto" and wide:
        launch_plan(plan_for(*x.shape[-2:], x.element_size()), bits, turned)
        return out
    if kernel in ("registers", "staged"):
        if not wide:
            raise ValueError(
                f"transpose: kernel={kernel!r} moves packs, so rows and columns must "
                f"be multiples of {pack_width(x.element_size())} and x and out begin "
                f"at multiples of 16 bytes; got {tuple(x.shape)}. Leave kernel= away."
            )
        launch_plan(_REGISTERS if kernel == "registers" else _STAGED, bits, turned)
    elif kernel in ("auto", "any"):
        _launch_any(c_type, bits, turned)
    else:
        raise ValueError(
            f"transpose: no kernel {kernel!r}; wanted auto, {', '.join(_RUNG_BLOCKS)}, "
            "registers, staged or any."
        )
    return out


def packs_fit(x: torch.Tensor, out: torch.Tensor) -> bool:
    """Say whether rows, columns and addresses are whole packs."""
    width = pack_width(x.element_size())
    whole = x.shape[-2] % width == 0 and x.shape[-1] % width == 0
    return whole and x.data_ptr() % 16 == 0 and out.data_ptr() % 16 == 0


def launch_plan(plan: Plan, x: torch.Tensor, out: torch.Tensor) -> None:
    """Launch a kernel on packs; x and out are contiguous and of an integer dtype."""
    c_type = _ELEMENTS[x.element_size()][0]
    width = pack_width(x.element_size())
    _launch_tiles(
        plan.expression.format(c_type),
        plan.threads,
        (plan.rows * width, plan.columns * width),
        plan.down,
        x,
        out,
    )


def _launch_any(c_type: str, x: torch.Tensor, out: torch.Tensor) -> None:
    name, tile = f"transpose_any<{c_type}>", (_ANY_SIDE, _ANY_SIDE)
    _launch_tiles(name, (32, 8), tile, True, x, out)


def _launch_tiles(
    expression: str,
    block: int | tuple[int, int],
    tile: tuple[int, int],
    down: bool,
    x: torch.Tensor,
    out: torch.Tensor,
) -> None:
    rows, columns = x.shape[-2:]
    row_tiles, column_tiles = kw.cdiv(rows, tile[0]), kw.cdiv(columns, tile[1])
    blocks = x.numel() // (rows * columns) * row_tiles * column_tiles
    kernel = _kernel("any_size", expression, x.device.type)
    kernel[blocks, block](x, out, rows, columns, row_tiles, column_tiles, down)


def _launch_rung(name: str, x: torch.Tensor, out: torch.Tensor) -> None:
    if x.element_size() != 4 or x.dim() != 2 or x.numel() >= _MOST_RUNG_ELEMENTS:
        raise ValueError(
            f"transpose: kernel={name!r} is a rung of the chapter: one matrix, 4-byte "
            f"elements, fewer than {_MOST_RUNG_ELEMENTS:,} of them; got "
            f"{tuple(x.shape)} of {x.element_size()} bytes. Leave kernel= away."
        )
    if name == "swizzled" and not packs_fit(x, out):
        raise ValueError(
            "transpose: kernel='swizzled' moves four elements at a time, so rows and "
            f"columns must be multiples of 4; got {tuple(x.shape)}. Leave kernel= away."
        )
    rows, columns = x.shape
    across, down = kw.cdiv(columns, 32), kw.cdiv(rows, 32)
    # The last rung's blocks go down a column of tiles.
    grid = (down, across) if name == "swizzled" else (across, down)
    kernel = _kernel(name, f"transpose_{name}", x.device.type)
    kernel[grid, _RUNG_BLOCKS[name]](
        x.view(torch.float32), out.view(torch.float32), rows, columns
    )


def _check(x: torch.Tensor) -> None:
    """Validate once, at the boundary: kernels do not."""
    check_tensor("transpose", "x", x, None)
    if x.element_size() not in _ELEMENTS:
        raise TypeError(
            f"transpose: x is {x.dtype}, elements of {x.element_size()} bytes; wanted "
            "1, 2, 4 or 8. A complex128 tensor: transpose torch.view_as_real(x)'s "
            "two halves."
        )
    if x.dim() < 2:
        raise ValueError(
            f"transpose: x has shape {tuple(x.shape)}; wanted at least two "
            "dimensions: x[None] makes a row of a vector."
        )


def _check_out(x: torch.Tensor, out: torch.Tensor) -> None:
    _check(out)
    wanted = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    if tuple(out.shape) != wanted or out.dtype != x.dtype or out.device != x.device:
        raise ValueError(
            f"transpose: out is {tuple(out.shape)}, {out.dtype}, on {out.device}; "
            f"wanted {wanted}, {x.dtype}, on {x.device}: x.new_empty({wanted})."
        )
    if not out.is_contiguous():
        raise ValueError(
            f"transpose: out is not contiguous (strides {out.stride()}); leave out= "
            "away, or copy the result into it."
        )
    if torch.is_grad_enabled() and (x.requires_grad or out.requires_grad):
        raise ValueError(
            "transpose: out= cannot carry a gradient; leave it away, or call under "
            "torch.no_grad()."
        )
