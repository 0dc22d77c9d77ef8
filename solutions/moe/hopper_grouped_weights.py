"""The weights' gradient of ragged experts for Hopper in Gluon.

    out[e] = aᵀ b,   summed over expert e's rows

Both operands are read as they lie, columns last, and the tensor cores transpose. An
expert's rows begin at multiples of 64 here, with zeros behind its last: a step takes 64
rows of both, and what it takes too much adds nothing.
"""

from __future__ import annotations

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernelwright.operators import held
from solutions.epilogue.hopper_tiles import (
    CONSUMERS,
    PIECE,
    ROWS,
    STEP,
    barriers,
    described,
    done_with,
    next_stage,
    not_here,
    pieces_of,
    place_of,
    processors,
)

WIDE = gl.constexpr(256)  # columns of a tile
STAGES = gl.constexpr(4)


@gluon.jit
def _place_of(tile, begins_ptr, ends_ptr, tiles_m, tiles_n):
    """Say which expert's tile it is, where in its matrix, and which rows it sums."""
    expert = tile // (tiles_m * tiles_n)
    m, n = place_of(tile % (tiles_m * tiles_n), tiles_m, tiles_n)
    begin = gl.load(begins_ptr + expert)
    steps = gl.cdiv(gl.load(ends_ptr + expert) - begin, STEP)
    return expert, m, n, begin, steps


@gluon.jit
def _producer(asked):
    a_desc, b_desc, begins_ptr, ends_ptr, a_tiles, b_tiles, full, empty, numbers = asked
    experts, tiles_m, tiles_n = numbers
    count = 0
    all_tiles = experts * tiles_m * tiles_n
    for tile in range(gl.program_id(0), all_tiles, gl.num_programs(0)):
        _, m, n, begin, steps = _place_of(tile, begins_ptr, ends_ptr, tiles_m, tiles_n)
        for k in range(steps):
            stage, bar = next_stage(
                count, full, empty,
                CONSUMERS * a_desc.block_type.nbytes + b_desc.block_type.nbytes,
                STAGES,
            )  # fmt: skip
            row = begin + k * STEP
            for c in gl.static_range(CONSUMERS):
                at = a_tiles.index(stage * CONSUMERS + c)
                place = [row, (m * CONSUMERS + c) * ROWS]
                tma.async_copy_global_to_shared(a_desc, place, bar, at)
            at = b_tiles.index(stage)
            tma.async_copy_global_to_shared(b_desc, [row, n * WIDE], bar, at)
            count += 1


@gluon.jit
def _consume(shared, C: gl.constexpr):
    """Own 64 rows of each tile of the result."""
    out_desc, begins_ptr, ends_ptr, tiles, bars, numbers = shared
    a_tiles, b_tiles, rooms = tiles
    full, empty = bars
    experts, tiles_m, tiles_n, _height = numbers
    OUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDE, 16])
    count = 0
    all_tiles = experts * tiles_m * tiles_n
    for tile in range(gl.program_id(0), all_tiles, gl.num_programs(0)):
        expert, m, n, _, steps = _place_of(tile, begins_ptr, ends_ptr, tiles_m, tiles_n)
        acc = gl.zeros([ROWS, WIDE], gl.float32, OUT)
        for k in range(steps):
            stage = count % STAGES
            mbarrier.wait(full.index(stage), (count // STAGES) & 1)
            a = a_tiles.index(stage * CONSUMERS + C).permute((1, 0))
            acc = warpgroup_mma(a, b_tiles.index(stage), acc, is_async=True)
            acc = warpgroup_mma_wait(1, deps=[acc])
            done_with(count, empty, STAGES, k > 0)
            count += 1
        acc = warpgroup_mma_wait(0, deps=[acc])
        done_with(count, empty, STAGES, steps > 0)
        row0 = (m * CONSUMERS + C) * ROWS
        pieces = pieces_of(acc, WIDE // PIECE)
        for i in gl.static_range(WIDE // PIECE):
            tma.store_wait(1)
            room = rooms.index(C * 2 + i % 2)
            room.reshape([ROWS, PIECE]).store(pieces[i].to(out_desc.dtype))
            fence_async_shared()
            place = [expert, row0, n * WIDE + i * PIECE]
            tma.async_copy_shared_to_global(out_desc, place, room)
    tma.store_wait(0)


@gluon.jit
def _weights_kernel(
    a_desc, b_desc, out_desc, begins_ptr, ends_ptr, experts, height, columns,
):  # fmt: skip
    tiles_m = gl.cdiv(height, CONSUMERS * ROWS)
    tiles_n = gl.cdiv(columns, WIDE)
    a_tiles = gl.allocate_shared_memory(
        a_desc.dtype, [STAGES * CONSUMERS, STEP, ROWS], a_desc.layout
    )
    b_tiles = gl.allocate_shared_memory(
        b_desc.dtype, [STAGES, STEP, WIDE], b_desc.layout
    )
    rooms = gl.allocate_shared_memory(
        out_desc.dtype, [2 * CONSUMERS, 1, ROWS, PIECE], out_desc.layout
    )
    full, empty = barriers(STAGES)
    shared = (
        out_desc, begins_ptr, ends_ptr, (a_tiles, b_tiles, rooms), (full, empty),
        (experts, tiles_m, tiles_n, height),
    )  # fmt: skip
    asked = (
        a_desc, b_desc, begins_ptr, ends_ptr, a_tiles, b_tiles, full, empty,
        (experts, tiles_m, tiles_n),
    )  # fmt: skip
    gl.warp_specialize([
        (_consume, (shared, 0)),
        (_consume, (shared, 1)),
        (_producer, (asked,)),
    ], [4, 1], [232, 24])  # fmt: skip


def weights_gradient(
    a: torch.Tensor, b: torch.Tensor, begins: torch.Tensor, ends: torch.Tensor
) -> torch.Tensor:
    """Launch the kernel.

    Args:
        a: (height, m), fp16 or bf16.
        b: (height, n).
        begins: (experts), int32: each expert's first row, a multiple of 64.
        ends: (experts), int32; from there to the next multiple of 64 are zeros.

    Returns:
        (experts, m, n).
    """
    experts, m, n = begins.shape[0], a.shape[1], b.shape[1]
    out = torch.empty((experts, m, n), dtype=a.dtype, device=a.device)
    kind = gl.float16 if a.dtype == torch.float16 else gl.bfloat16
    box = [1, ROWS.value, PIECE.value]
    layout = gl.NVMMASharedLayout.get_default_for(box, kind)
    tall = triton.cdiv(m, CONSUMERS.value * ROWS.value)
    tiles = experts * tall * triton.cdiv(n, WIDE.value)
    held(_weights_kernel)[(min(tiles, processors(a.device.index or 0)),)](
        described(a, [STEP.value, ROWS.value]), described(b, [STEP.value, WIDE.value]),
        TensorDescriptor.from_tensor(out, box, layout), begins, ends, experts, m, n,
        num_warps=4,
    )  # fmt: skip
    return out


def refuses(a: torch.Tensor, b: torch.Tensor) -> str | None:
    """Say why this kernel cannot multiply; None where it can.

    Args:
        a: (height, m), contiguous.
        b: (height, n), contiguous.
    """
    if reason := not_here(a):
        return reason
    if not a.numel() or not b.numel():
        return "it wants one number at least"
    if a.shape[1] % 8 or b.shape[1] % 8 or a.data_ptr() % 16 or b.data_ptr() % 16:
        return "TMA wants rows at multiples of 16 bytes"
    return None
