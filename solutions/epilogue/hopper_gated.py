"""Two products of the same rows, and one's activation times the other, for Hopper.

    out = activation(x gateᵀ) * (x upᵀ)

``hopper.py`` with two weights: a consumer has the same 64 x 128 tile of both products
in registers, and what leaves is their combination. In eager PyTorch it takes two
products, and two kernels that read and write the hidden layer five times.
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
    pieces_of,
    place_of,
    processors,
    summed_twice,
)

WIDE = gl.constexpr(128)  # columns of a tile, of each product
STAGES = gl.constexpr(4)


@gluon.jit
def _producer(asked):
    """Ask for a tile of x and one of each weight, step by step."""
    descriptors, x_tiles, weight_tiles, full, empty, numbers = asked
    x_desc, gate_desc, up_desc = descriptors
    tiles_m, tiles_n, steps = numbers
    count = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        m, n = place_of(tile, tiles_m, tiles_n)
        for k in range(steps):
            stage, bar = next_stage(
                count, full, empty,
                CONSUMERS * x_desc.block_type.nbytes + 2 * gate_desc.block_type.nbytes,
                STAGES,
            )  # fmt: skip
            for c in gl.static_range(CONSUMERS):
                row = (m * CONSUMERS + c) * ROWS
                at = x_tiles.index(stage * CONSUMERS + c)
                tma.async_copy_global_to_shared(x_desc, [row, k * STEP], bar, at)
            here = [n * WIDE, k * STEP]
            at = weight_tiles.index(stage * 2)
            tma.async_copy_global_to_shared(gate_desc, here, bar, at)
            at = weight_tiles.index(stage * 2 + 1)
            tma.async_copy_global_to_shared(up_desc, here, bar, at)
            count += 1


@gluon.jit
def _consume(shared, ACTIVATION: gl.constexpr, KEEP: gl.constexpr, C: gl.constexpr):
    """Own 64 rows of each tile of both products."""
    descriptors, x_tiles, weight_tiles, rooms, full, empty, numbers = shared
    out_desc, gate_desc, up_desc = descriptors
    tiles_m, tiles_n, steps = numbers
    count = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        m, n = place_of(tile, tiles_m, tiles_n)
        gate, up, count = summed_twice(
            count, steps, x_tiles, weight_tiles, full, empty, WIDE, STAGES, C
        )
        row0 = (m * CONSUMERS + C) * ROWS
        COUNT: gl.constexpr = WIDE // PIECE
        gates = pieces_of(gate, COUNT)
        ups = pieces_of(up, COUNT)
        for i in gl.static_range(COUNT):
            col0 = n * WIDE + i * PIECE
            v = activated(gates[i], ACTIVATION) * ups[i]
            leave(v, out_desc, row0, col0, rooms.index(C * 2 + i % 2), 1)
        if KEEP:
            for i in gl.static_range(COUNT):
                col0 = n * WIDE + i * PIECE
                leave(gates[i], gate_desc, row0, col0, rooms.index(C * 2), 1)
                leave(ups[i], up_desc, row0, col0, rooms.index(C * 2 + 1), 1)
    tma.store_wait(0)


@gluon.jit
def _gated_kernel(
    x_desc, gate_desc, up_desc, out_desc, kept_gate_desc, kept_up_desc,
    rows, columns, inner, ACTIVATION: gl.constexpr, KEEP: gl.constexpr,
):  # fmt: skip
    tiles_m = gl.cdiv(rows, CONSUMERS * ROWS)
    tiles_n = gl.cdiv(columns, WIDE)
    steps = gl.cdiv(inner, STEP)
    x_tiles = gl.allocate_shared_memory(
        x_desc.dtype, [STAGES * CONSUMERS, ROWS, STEP], x_desc.layout
    )
    weight_tiles = gl.allocate_shared_memory(
        gate_desc.dtype, [STAGES * 2, WIDE, STEP], gate_desc.layout
    )
    rooms = gl.allocate_shared_memory(
        out_desc.dtype, [2 * CONSUMERS, ROWS, PIECE], out_desc.layout
    )
    full, empty = barriers(STAGES)
    shared = (
        (out_desc, kept_gate_desc, kept_up_desc), x_tiles, weight_tiles, rooms,
        full, empty, (tiles_m, tiles_n, steps),
    )  # fmt: skip
    asked = (
        (x_desc, gate_desc, up_desc), x_tiles, weight_tiles, full, empty,
        (tiles_m, tiles_n, steps),
    )  # fmt: skip
    gl.warp_specialize([
        (_consume, (shared, ACTIVATION, KEEP, 0)),
        (_consume, (shared, ACTIVATION, KEEP, 1)),
        (_producer, (asked,)),
    ], [4, 1], [232, 24])  # fmt: skip


def gated(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, activation: str,
    *, keep: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:  # fmt: skip
    """Launch the kernel; ask ``hopper.refuses`` beforehand for both weights.

    Args:
        x: (rows, inner).
        gate: (columns, inner).
        up: (columns, inner).
        activation: of the first product.
        keep: return both products as well.

    Returns:
        The result, (rows, columns), and the products that were kept.
    """
    rows, inner = x.shape
    columns = gate.shape[0]
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    kept = [torch.empty_like(out) if keep else None for _ in range(2)]
    piece = [ROWS.value, PIECE.value]
    place = described(out, piece)
    tiles = triton.cdiv(rows, 2 * ROWS.value) * triton.cdiv(columns, WIDE.value)
    held(_gated_kernel)[(min(tiles, processors(x.device.index or 0)),)](
        described(x, [ROWS.value, STEP.value]),
        described(gate, [WIDE.value, STEP.value]),
        described(up, [WIDE.value, STEP.value]),
        place, *(place if one is None else described(one, piece) for one in kept),
        rows, columns, inner, ACTIVATION=activation, KEEP=keep, num_warps=4,
    )  # fmt: skip
    return out, kept[0], kept[1]
