"""Products of ragged experts for Hopper in Gluon: TMA, wgmma, warps with roles.

    out[row] = x[row] weights[expert of row],   experts' rows next to each other

``solutions.epilogue.hopper`` with a list in place of a grid: tile i of the rows is of
expert ``list[i]``, and the kernel reads from there which weights to multiply by and
where that expert's rows end. The list is made on the GPU (``tiles.cu``): how many rows
an expert has is never known to the host, and nothing waits for it.

Weights lie either way: k last, (experts, columns, inner), or columns last. With
GATED the weights' first half of columns are gates:

    out = silu(x gateᵀ) * (x upᵀ)
"""

from __future__ import annotations

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

from kernelwright.operators import held
from solutions.epilogue.gluon_activations import activated
from solutions.epilogue.hopper import leave
from solutions.epilogue.hopper_tiles import (
    CONSUMERS,
    PIECE,
    ROWS,
    STEP,
    barriers,
    described,
    next_stage,
    not_here,
    pieces_of,
    place_of,
    processors,
    summed,
    summed_twice,
)

ENTRY = gl.constexpr(4)  # numbers of a tile in the list; the first one says how many


@gluon.jit
def _entry_of(list_ptr, m):
    """Read a tile's expert, first row, and where its expert's rows end."""
    at = list_ptr + (m + 1) * ENTRY
    return gl.load(at), gl.load(at + 1), gl.load(at + 2)


@gluon.jit
def _producer(
    asked, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, GATED: gl.constexpr,
    COLUMNS_LAST: gl.constexpr,
):  # fmt: skip
    """Ask for every tile in the order in which it is used."""
    x_desc, weight_desc, list_ptr, x_tiles, weight_tiles, full, empty, numbers = asked
    tiles_m, tiles_n, steps, columns, inner = numbers
    PARTS: gl.constexpr = 2 if GATED else 1
    count = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        m, n = place_of(tile, tiles_m, tiles_n)
        expert, first, _ = _entry_of(list_ptr, m)
        for k in range(gl.where(expert < 0, 0, steps)):
            stage, bar = next_stage(
                count, full, empty,
                CONSUMERS * x_desc.block_type.nbytes
                + PARTS * weight_desc.block_type.nbytes,
                STAGES,
            )  # fmt: skip
            for c in gl.static_range(CONSUMERS):
                at = x_tiles.index(stage * CONSUMERS + c)
                place = [first + c * ROWS, k * STEP]
                tma.async_copy_global_to_shared(x_desc, place, bar, at)
            for part in gl.static_range(PARTS):
                at = weight_tiles.index(stage * PARTS + part)
                if COLUMNS_LAST:
                    place = [expert * inner + k * STEP, n * BLOCK_N]
                else:
                    row = (expert * PARTS + part) * columns + n * BLOCK_N
                    place = [row, k * STEP]
                tma.async_copy_global_to_shared(weight_desc, place, bar, at)
            count += 1


@gluon.jit
def _leave(v, desc, ptr, row0, col0, end, columns, room, UNDER_WAY: gl.constexpr):
    """Send a piece to memory, but no row that is another expert's."""
    if row0 + ROWS <= end:
        leave(v, desc, row0, col0, room, UNDER_WAY)
    else:
        layout: gl.constexpr = v.type.layout
        rows = row0 + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
        cols = col0 + gl.arange(0, PIECE, gl.SliceLayout(0, layout))
        inside = (rows[:, None] < end) & (cols[None, :] < columns)
        at = ptr + rows[:, None].to(gl.int64) * columns + cols[None, :]
        gl.store(at, v.to(desc.dtype), mask=inside)


@gluon.jit
def _consume(
    shared, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, GATED: gl.constexpr,
    KEEP: gl.constexpr, COLUMNS_LAST: gl.constexpr, C: gl.constexpr,
):  # fmt: skip
    """Own 64 rows of each tile."""
    out_desc, kept_desc, out_ptr, kept_ptr, list_ptr, tiles, bars, numbers = shared
    x_tiles, weight_tiles, rooms = tiles
    full, empty = bars
    tiles_m, tiles_n, steps, columns = numbers
    COUNT: gl.constexpr = BLOCK_N // PIECE
    count = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        m, n = place_of(tile, tiles_m, tiles_n)
        expert, first, end = _entry_of(list_ptr, m)
        here = gl.where(expert < 0, 0, steps)
        row0 = first + C * ROWS
        if GATED:
            gate, up, count = summed_twice(
                count, here, x_tiles, weight_tiles, full, empty, BLOCK_N, STAGES, C
            )
            gates = pieces_of(gate, COUNT)
            ups = pieces_of(up, COUNT)
            for i in gl.static_range(COUNT):
                v = activated(gates[i], "silu") * ups[i]
                col0 = n * BLOCK_N + i * PIECE
                _leave(v, out_desc, out_ptr, row0, col0, end, columns,
                       rooms.index(C * 2 + i % 2), 1)  # fmt: skip
            if KEEP:
                for i in gl.static_range(COUNT):
                    col0 = n * BLOCK_N + i * PIECE
                    if col0 < columns:
                        _leave(gates[i], kept_desc, kept_ptr, row0, col0, end,
                               2 * columns, rooms.index(C * 2), 1)  # fmt: skip
                        _leave(ups[i], kept_desc, kept_ptr, row0, columns + col0, end,
                               2 * columns, rooms.index(C * 2 + 1), 1)  # fmt: skip
        else:
            acc, count = summed(
                count, here, x_tiles, weight_tiles, full, empty, BLOCK_N, STAGES, C,
                COLUMNS_LAST,
            )  # fmt: skip
            pieces = pieces_of(acc, COUNT)
            for i in gl.static_range(COUNT):
                _leave(pieces[i], out_desc, out_ptr, row0, n * BLOCK_N + i * PIECE, end,
                       columns, rooms.index(C * 2 + i % 2), 1)  # fmt: skip
    tma.store_wait(0)


@gluon.jit
def _grouped_kernel(
    x_desc, weight_desc, out_desc, kept_desc, out_ptr, kept_ptr, list_ptr,
    columns, inner,
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr, GATED: gl.constexpr,
    KEEP: gl.constexpr, COLUMNS_LAST: gl.constexpr,
):  # fmt: skip
    tiles_m = gl.load(list_ptr)
    tiles_n = gl.cdiv(columns, BLOCK_N)
    steps = gl.cdiv(inner, STEP)
    PARTS: gl.constexpr = 2 if GATED else 1
    x_tiles = gl.allocate_shared_memory(
        x_desc.dtype, [STAGES * CONSUMERS, ROWS, STEP], x_desc.layout
    )
    weight_tiles = gl.allocate_shared_memory(
        weight_desc.dtype,
        [
            STAGES * PARTS,
            weight_desc.block_type.shape[0],
            weight_desc.block_type.shape[1],
        ],
        weight_desc.layout,
    )
    rooms = gl.allocate_shared_memory(
        out_desc.dtype, [2 * CONSUMERS, ROWS, PIECE], out_desc.layout
    )
    full, empty = barriers(STAGES)
    shared = (
        out_desc, kept_desc, out_ptr, kept_ptr, list_ptr,
        (x_tiles, weight_tiles, rooms), (full, empty),
        (tiles_m, tiles_n, steps, columns),
    )  # fmt: skip
    asked = (
        x_desc, weight_desc, list_ptr, x_tiles, weight_tiles, full, empty,
        (tiles_m, tiles_n, steps, columns, inner),
    )  # fmt: skip
    gl.warp_specialize([
        (_consume, (shared, BLOCK_N, STAGES, GATED, KEEP, COLUMNS_LAST, 0)),
        (_consume, (shared, BLOCK_N, STAGES, GATED, KEEP, COLUMNS_LAST, 1)),
        (_producer, (asked, BLOCK_N, STAGES, GATED, COLUMNS_LAST)),
    ], [4, 1], [232, 24])  # fmt: skip


def grouped(
    x: torch.Tensor,
    weights: torch.Tensor,
    tiles: torch.Tensor,
    *,
    gated: bool = False,
    keep: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Launch the kernel; ask ``refuses`` beforehand whether it can.

    Args:
        x: (height, inner), rows next to each other.
        weights: (experts, inner, columns), with either of the last two next to each
            other; gated: (experts, inner, 2 columns), inner next to each other.
        tiles: what ``tiles.cu`` listed.
        gated: multiply by both halves, and return silu of the first times the second.
        keep: return what the activation was applied to, as well.

    Returns:
        (height, columns), where the list has tiles; and what was kept, (height,
        2 columns).
    """
    height, inner = x.shape
    _experts, _, columns = weights.shape
    columns = columns // 2 if gated else columns
    out = torch.empty((height, columns), dtype=x.dtype, device=x.device)
    kept = out.new_empty((height, 2 * columns)) if keep else None
    columns_last = weights.stride(2) == 1
    n = 128 if gated or columns <= 128 else 256
    stages = 4 if gated or n == 256 else 6
    if columns_last:
        flat, box = weights.flatten(0, 1), [STEP.value, n]
    else:
        flat, box = weights.mT.flatten(0, 1), [n, STEP.value]
    piece = [ROWS.value, PIECE.value]
    place = described(out, piece)
    most = (tiles.shape[0] - 1) * triton.cdiv(columns, n)
    held(_grouped_kernel)[(min(most, processors(x.device.index or 0)),)](
        described(x, [ROWS.value, STEP.value]), described(flat, box),
        place, place if kept is None else described(kept, piece),
        out, out if kept is None else kept, tiles, columns, inner,
        BLOCK_N=n, STAGES=stages, GATED=gated, KEEP=keep, COLUMNS_LAST=columns_last,
        num_warps=4,
    )  # fmt: skip
    return out, kept


def refuses(x: torch.Tensor, weights: torch.Tensor) -> str | None:
    """Say why these kernels cannot multiply; None where they can.

    Args:
        x: (height, inner).
        weights: (experts, inner, columns).
    """
    _experts, inner, columns = weights.shape
    if reason := not_here(x):
        return reason
    if not x.numel() or not weights.numel():
        return "it wants one number at least"
    if inner % STEP.value or columns % 8:
        return f"it wants {STEP.value} numbers of a row at a time, and 8 to write"
    if x.stride(1) != 1 or x.stride(0) % 8 or x.data_ptr() % 16:
        return "TMA wants rows at multiples of 16 bytes"
    one, other = weights.stride()[1:]
    if not ((one == columns and other == 1) or (one == 1 and other == inner)):
        return "it wants matrices without gaps"
    if weights.stride(0) != inner * columns or weights.data_ptr() % 16:
        return "it wants matrices one behind the other"
    return None
