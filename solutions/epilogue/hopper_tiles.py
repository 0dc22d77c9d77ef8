"""What the kernels of this folder share: the walk over tiles, barriers, the sum.

A producer fills a ring of stages in shared memory, and consumers empty it. Of each
stage two barriers say what happened last: ``full``, that its tiles are there, and
``empty``, that all consumers are done with them.
"""

from __future__ import annotations

from functools import cache

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

ROWS = gl.constexpr(64)  # of a consumer: what one wgmma takes
CONSUMERS = gl.constexpr(2)
STEP = gl.constexpr(64)  # of k: 128 bytes, a row of TMA's swizzle
PIECE = gl.constexpr(64)  # columns that leave together
TALL = gl.constexpr(8)  # tiles of rows that are taken together


@gluon.jit
def place_of(tile, tiles_m, tiles_n):
    """Say where a tile is: 8 rows of tiles at a time share what L2 holds of them."""
    group = tile // (TALL * tiles_n)
    first = group * TALL
    height = gl.minimum(tiles_m - first, TALL)
    within = tile - group * TALL * tiles_n
    return first + within % height, within // height


@gluon.jit
def barriers(STAGES: gl.constexpr):
    """Make the barriers of a ring: full ones, which TMA signals, and empty ones."""
    layout: gl.constexpr = mbarrier.MBarrierLayout()
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], layout)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], layout)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    fence_async_shared()
    return full, empty


@gluon.jit
def next_stage(count, full, empty, nbytes, STAGES: gl.constexpr):
    """Wait until a stage is empty, and say how many bytes will fill it."""
    stage = count % STAGES
    # The first pass over the ring finds it empty.
    mbarrier.wait(empty.index(stage), ((count // STAGES) & 1) ^ 1)
    bar = full.index(stage)
    mbarrier.expect(bar, nbytes)
    return stage, bar


@gluon.jit
def done_with(count, empty, STAGES: gl.constexpr, pred=True):
    """Let the producer overwrite the stage before this one."""
    before = (count + STAGES - 1) % STAGES
    mbarrier.arrive(empty.index(before), count=1, pred=pred)


@gluon.jit
def summed(
    count, steps, x_tiles, weight_tiles, full, empty,
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr, C: gl.constexpr,
    COLUMNS_LAST: gl.constexpr = False,
):  # fmt: skip
    """Multiply 64 rows by the weight, step by step; return the tile and the count."""
    OUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    acc = gl.zeros([ROWS, BLOCK_N], gl.float32, OUT)
    for k in range(steps):
        stage = count % STAGES
        mbarrier.wait(full.index(stage), (count // STAGES) & 1)
        x = x_tiles.index(stage * CONSUMERS + C).reshape([ROWS, STEP])
        if COLUMNS_LAST:
            weight = weight_tiles.index(stage).reshape([STEP, BLOCK_N])
        else:
            weight = weight_tiles.index(stage).reshape([BLOCK_N, STEP]).permute((1, 0))
        acc = warpgroup_mma(x, weight, acc, is_async=True)
        # One stays under way: the tiles of the one before may be overwritten.
        acc = warpgroup_mma_wait(1, deps=[acc])
        done_with(count, empty, STAGES, k > 0)
        count += 1
    acc = warpgroup_mma_wait(0, deps=[acc])
    done_with(count, empty, STAGES, steps > 0)
    return acc, count


@gluon.jit
def summed_twice(
    count, steps, x_tiles, weight_tiles, full, empty,
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr, C: gl.constexpr,
):  # fmt: skip
    """Multiply 64 rows by two weights; return both tiles and the count."""
    OUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    one = gl.zeros([ROWS, BLOCK_N], gl.float32, OUT)
    other = gl.zeros([ROWS, BLOCK_N], gl.float32, OUT)
    for k in range(steps):
        stage = count % STAGES
        mbarrier.wait(full.index(stage), (count // STAGES) & 1)
        x = x_tiles.index(stage * CONSUMERS + C)
        to_one = weight_tiles.index(stage * 2).permute((1, 0))
        to_other = weight_tiles.index(stage * 2 + 1).permute((1, 0))
        one = warpgroup_mma(x, to_one, one, is_async=True)
        other = warpgroup_mma(x, to_other, other, is_async=True)
        # Two stay under way: those of the step before are done.
        one, other = warpgroup_mma_wait(2, deps=[one, other])
        done_with(count, empty, STAGES, k > 0)
        count += 1
    one, other = warpgroup_mma_wait(0, deps=[one, other])
    done_with(count, empty, STAGES, steps > 0)
    return one, other, count


@gluon.jit
def pieces_of(x, COUNT: gl.constexpr):
    """Cut a tile in registers into COUNT tiles of fewer columns."""
    found = (x,)
    halvings: gl.constexpr = COUNT.bit_length() - 1
    for _ in gl.static_range(halvings):
        halves = ()
        for i in gl.static_range(len(found)):
            one = found[i]
            two = one.reshape([one.shape[0], 2, one.shape[1] // 2]).permute((0, 2, 1))
            halves = halves + two.split()
        found = halves
    return found


def not_here(x: torch.Tensor) -> str | None:
    """Say why no kernel of this folder runs where x is; None where they do."""
    if x.device.type != "cuda":
        return "it runs on a GPU only, and under no interpreter"
    if torch.cuda.get_device_capability(x.device)[0] != 9:
        return "it is for Hopper (compute capability 9.0): wgmma is nowhere else"
    if x.dtype not in (torch.float16, torch.bfloat16):
        return f"it takes float16 and bfloat16, not {x.dtype}"
    return None


@cache
def processors(device: int) -> int:
    """Return how many SMs a GPU has."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def described(tensor: torch.Tensor, block: list[int]) -> TensorDescriptor:
    """Describe boxes of a tensor to the TMA engine."""
    kind = gl.float16 if tensor.dtype == torch.float16 else gl.bfloat16
    layout = gl.NVMMASharedLayout.get_default_for(block, kind)
    return TensorDescriptor.from_tensor(tensor, block, layout)
