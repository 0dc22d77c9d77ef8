"""A product with its epilogue for Hopper in Gluon: TMA, wgmma, warps with roles.

    out = activation(x weightᵀ + bias) + residual

As many programs as the GPU has SMs, each of which takes tile after tile of the result:

    producer   one warp: asks the TMA engine for tiles of x and of the weight, and runs
               ahead into the next tile while the consumers finish this one
    consumers  two warpgroups of 4 warps: 64 rows each of a tile of 128

A consumer has its part of the tile in registers when the last step is done: what the
epilogue adds to it costs instructions and no traffic. The result leaves in pieces of 64
columns through shared memory, by TMA, while the next piece is computed.
"""

from __future__ import annotations

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    tma,
)

from kernelwright.operators import held
from solutions.epilogue.gluon_activations import activated
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
)


@gluon.jit
def _producer(asked, BLOCK_N: gl.constexpr, STAGES: gl.constexpr):
    """Ask for every tile in the order in which it is used."""
    x_desc, weight_desc, x_tiles, weight_tiles, full, empty, numbers = asked
    tiles_m, tiles_n, steps = numbers
    count = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        m, n = place_of(tile, tiles_m, tiles_n)
        for k in range(steps):
            stage, bar = next_stage(
                count, full, empty,
                CONSUMERS * x_desc.block_type.nbytes + weight_desc.block_type.nbytes,
                STAGES,
            )  # fmt: skip
            for c in gl.static_range(CONSUMERS):
                row = (m * CONSUMERS + c) * ROWS
                at = x_tiles.index(stage * CONSUMERS + c)
                tma.async_copy_global_to_shared(x_desc, [row, k * STEP], bar, at)
            at = weight_tiles.index(stage)
            tma.async_copy_global_to_shared(
                weight_desc, [n * BLOCK_N, k * STEP], bar, at
            )
            count += 1


@gluon.jit
def leave(v, desc, row0, col0, room, UNDER_WAY: gl.constexpr):
    """Send a piece to memory; UNDER_WAY stores before it may still read their rooms."""
    tma.store_wait(UNDER_WAY)
    room.store(v.to(desc.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(desc, [row0, col0], room)


@gluon.jit
def _finish(
    v, row0, col0, descriptors, given, rooms, rows, columns,
    ACTIVATION: gl.constexpr, BIAS: gl.constexpr, RESIDUAL: gl.constexpr,
    KEEP: gl.constexpr, KEPT_ROOM: gl.constexpr,
    OUT_ROOM: gl.constexpr, UNDER_WAY: gl.constexpr,
):  # fmt: skip
    """Do the epilogue of a piece: 64 rows, 64 columns."""
    out_desc, pre_desc = descriptors
    bias_ptr, residual_ptr = given
    layout: gl.constexpr = v.type.layout
    cols = col0 + gl.arange(0, PIECE, gl.SliceLayout(0, layout))
    if BIAS:
        bias = gl.load(bias_ptr + cols, mask=cols < columns, other=0.0)
        v += bias.to(gl.float32)[None, :]
    if KEEP:
        leave(v, pre_desc, row0, col0, rooms.index(KEPT_ROOM), UNDER_WAY)
    v = activated(v, ACTIVATION)
    if RESIDUAL:
        at = row0 + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
        inside = (at[:, None] < rows) & (cols[None, :] < columns)
        place = residual_ptr + at[:, None].to(gl.int64) * columns + cols[None, :]
        v += gl.load(place, mask=inside, other=0.0).to(gl.float32)
    leave(v, out_desc, row0, col0, rooms.index(OUT_ROOM), UNDER_WAY)


@gluon.jit
def _consume(
    shared, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
    ACTIVATION: gl.constexpr, BIAS: gl.constexpr, RESIDUAL: gl.constexpr,
    KEEP: gl.constexpr, C: gl.constexpr,
):  # fmt: skip
    """Own 64 rows of each tile: multiply, then the epilogue in registers."""
    descriptors, given, tiles, bars, numbers = shared
    x_tiles, weight_tiles, rooms = tiles
    full, empty = bars
    tiles_m, tiles_n, steps, rows, columns = numbers
    COUNT: gl.constexpr = BLOCK_N // PIECE
    count = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        m, n = place_of(tile, tiles_m, tiles_n)
        acc, count = summed(
            count, steps, x_tiles, weight_tiles, full, empty, BLOCK_N, STAGES, C
        )
        row0 = (m * CONSUMERS + C) * ROWS
        pieces = pieces_of(acc, COUNT)
        for i in gl.static_range(COUNT):
            _finish(
                pieces[i], row0, n * BLOCK_N + i * PIECE, descriptors, given, rooms,
                rows, columns, ACTIVATION, BIAS, RESIDUAL, KEEP,
                C * 2, C * 2 + (1 if KEEP else i % 2), 1 if KEEP or COUNT > 1 else 0,
            )  # fmt: skip
    tma.store_wait(0)


@gluon.jit
def _linear_kernel(
    x_desc, weight_desc, out_desc, pre_desc, bias_ptr, residual_ptr,
    rows, columns, inner,
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
    ACTIVATION: gl.constexpr, BIAS: gl.constexpr, RESIDUAL: gl.constexpr,
    KEEP: gl.constexpr,
):  # fmt: skip
    tiles_m = gl.cdiv(rows, CONSUMERS * ROWS)
    tiles_n = gl.cdiv(columns, BLOCK_N)
    steps = gl.cdiv(inner, STEP)
    x_tiles = gl.allocate_shared_memory(
        x_desc.dtype, [STAGES * CONSUMERS, ROWS, STEP], x_desc.layout
    )
    weight_tiles = gl.allocate_shared_memory(
        weight_desc.dtype,
        [STAGES, weight_desc.block_type.shape[0], weight_desc.block_type.shape[1]],
        weight_desc.layout,
    )
    rooms = gl.allocate_shared_memory(
        out_desc.dtype, [2 * CONSUMERS, ROWS, PIECE], out_desc.layout
    )
    full, empty = barriers(STAGES)
    shared = (
        (out_desc, pre_desc), (bias_ptr, residual_ptr),
        (x_tiles, weight_tiles, rooms), (full, empty),
        (tiles_m, tiles_n, steps, rows, columns),
    )  # fmt: skip
    asked = (
        x_desc, weight_desc, x_tiles, weight_tiles, full, empty,
        (tiles_m, tiles_n, steps),
    )  # fmt: skip
    gl.warp_specialize([
        (_consume, (shared, BLOCK_N, STAGES, ACTIVATION, BIAS, RESIDUAL,
                    KEEP, 0)),
        (_consume, (shared, BLOCK_N, STAGES, ACTIVATION, BIAS, RESIDUAL,
                    KEEP, 1)),
        (_producer, (asked, BLOCK_N, STAGES)),
    ], [4, 1], [232, 24])  # fmt: skip


def refuses(x: torch.Tensor, weight: torch.Tensor) -> str | None:
    """Say why this kernel cannot multiply; None where it can.

    Args:
        x: (rows, inner).
        weight: (columns, inner).
    """
    if reason := not_here(x):
        return reason
    if not x.numel() or not weight.numel():
        return "it wants one number at least"
    if weight.shape[0] % 8:
        return "TMA wants rows of the result at multiples of 16 bytes"
    for tensor in (x, weight):
        if tensor.stride(1) != 1 or tensor.stride(0) % 8 or tensor.data_ptr() % 16:
            return "TMA wants rows at multiples of 16 bytes"
        if tensor.stride(0) < tensor.shape[1]:
            return "TMA wants each row in a place of its own"
    return None


def tile_columns(rows: int, columns: int, device: int) -> int:
    """Choose how wide a tile is: as wide as leaves no SM without one."""
    down = triton.cdiv(rows, CONSUMERS.value * ROWS.value)
    for n in (256, 128):
        if down * triton.cdiv(columns, n) >= processors(device):
            return n
    return 64


def multiplied(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None,
    activation: str = "none", residual: torch.Tensor | None = None, *,
    keep: bool = False, block_n: int | None = None, stages: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """Launch the kernel; ask ``refuses`` beforehand whether it can.

    Args:
        x: (rows, inner).
        weight: (columns, inner).
        bias: (columns), added first.
        activation: applied then, in fp32.
        residual: (rows, columns), contiguous, added last.
        keep: return what the activation was applied to, as well.
        block_n: columns of a tile: 256, 128 or 64; chosen when absent.
        stages: steps of k that are in shared memory at once.

    Returns:
        The result, (rows, columns), and what was kept.
    """
    rows, inner = x.shape
    columns = weight.shape[0]
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    kept = torch.empty_like(out) if keep else None
    n = block_n or tile_columns(rows, columns, x.device.index or 0)
    many = stages or (4 if n == 256 else 6)
    place = described(out, [ROWS.value, PIECE.value])
    tiles = triton.cdiv(rows, 2 * ROWS.value) * triton.cdiv(columns, n)
    grid = (min(tiles, processors(x.device.index or 0)),)
    held(_linear_kernel)[grid](
        described(x, [ROWS.value, STEP.value]),
        described(weight, [n, STEP.value]),
        place, place if kept is None else described(kept, [ROWS.value, PIECE.value]),
        out if bias is None else bias, out if residual is None else residual,
        rows, columns, inner,
        BLOCK_N=n, STAGES=many, ACTIVATION=activation,
        BIAS=bias is not None, RESIDUAL=residual is not None, KEEP=keep,
        num_warps=4,
    )  # fmt: skip
    return out, kept
