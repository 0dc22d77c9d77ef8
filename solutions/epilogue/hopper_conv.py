"""A convolution as a product without its matrix, for Hopper in Gluon.

    out[b, h, w, o] = activation(bias[o] + sum over r, q and c of
                                 x[b, h s + r - p, w s + q - p, c] weight[o, r, q, c])

Rows of the product are output pixels, its inner dimension is (r, q, c). The matrix that
would have a row of r q c numbers for each pixel is never built: for each place (r, q)
of the kernel the TMA engine brings a box of input pixels, shifted by it. What lies
outside of the image comes as zeros, which is the padding.

A step of 2 reads every other pixel: the four images of even and odd rows and columns
are tensors with larger strides, and each (r, q) reads from one of them.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

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


class Box(NamedTuple):
    """64 output pixels that a consumer owns: so many images, rows and columns."""

    images: int
    high: int
    wide: int


@gluon.jit
def _corner(box, boxes_h, boxes_w, IMAGES: gl.constexpr, HIGH: gl.constexpr,
            WIDE: gl.constexpr):  # fmt: skip
    """Return the first image, row and column of a box of output pixels."""
    w = box % boxes_w
    h = (box // boxes_w) % boxes_h
    return box // (boxes_w * boxes_h) * IMAGES, h * HIGH, w * WIDE


@gluon.jit
def _bring(x_descs, b, h, w, c, bar, at, STRIDE: gl.constexpr):
    """Ask for a box of input pixels; h and w are those of the image, unstrided."""
    if STRIDE == 1:
        tma.async_copy_global_to_shared(x_descs[0], [b, h, w, c], bar, at)
    else:
        # Of negative numbers too: the parity is the last bit, and the half rounds down.
        odd = (h & 1) * 2 + (w & 1)
        here = [b, h >> 1, w >> 1, c]
        if odd == 0:
            tma.async_copy_global_to_shared(x_descs[0], here, bar, at)
        elif odd == 1:
            tma.async_copy_global_to_shared(x_descs[1], here, bar, at)
        elif odd == 2:
            tma.async_copy_global_to_shared(x_descs[2], here, bar, at)
        else:
            tma.async_copy_global_to_shared(x_descs[3], here, bar, at)


@gluon.jit
def _producer(
    asked, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, IMAGES: gl.constexpr,
    HIGH: gl.constexpr, WIDE: gl.constexpr, STRIDE: gl.constexpr,
):  # fmt: skip
    """Ask for a box of pixels and a tile of the weight, place by place."""
    x_descs, weight_desc, x_tiles, weight_tiles, full, empty, numbers = asked
    tiles_m, tiles_n, across, places, parts, boxes_h, boxes_w, padding = numbers
    count = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        m, n = place_of(tile, tiles_m, tiles_n)
        for place in range(places):
            r, q = place // across, place % across
            for part in range(parts):
                stage, bar = next_stage(
                    count, full, empty,
                    CONSUMERS * x_descs[0].block_type.nbytes
                    + weight_desc.block_type.nbytes,
                    STAGES,
                )  # fmt: skip
                for c in gl.static_range(CONSUMERS):
                    b, h, w = _corner(
                        m * CONSUMERS + c, boxes_h, boxes_w, IMAGES, HIGH, WIDE
                    )
                    _bring(
                        x_descs, b, h * STRIDE + r - padding, w * STRIDE + q - padding,
                        part * STEP, bar, x_tiles.index(stage * CONSUMERS + c), STRIDE,
                    )  # fmt: skip
                tma.async_copy_global_to_shared(
                    weight_desc, [n * BLOCK_N, place, part * STEP], bar,
                    weight_tiles.index(stage),
                )  # fmt: skip
                count += 1


@gluon.jit
def _finish(
    v, box, col0, out_desc, bias_ptr, room, numbers, ACTIVATION: gl.constexpr,
    BIAS: gl.constexpr, IMAGES: gl.constexpr, HIGH: gl.constexpr, WIDE: gl.constexpr,
    UNDER_WAY: gl.constexpr,
):  # fmt: skip
    """Do the epilogue of a piece: 64 pixels, 64 channels."""
    channels, boxes_h, boxes_w = numbers
    cols = col0 + gl.arange(0, PIECE, gl.SliceLayout(0, v.type.layout))
    if BIAS:
        bias = gl.load(bias_ptr + cols, mask=cols < channels, other=0.0)
        v += bias.to(gl.float32)[None, :]
    v = activated(v, ACTIVATION)
    tma.store_wait(UNDER_WAY)
    room.reshape([ROWS, PIECE]).store(v.to(out_desc.dtype))
    fence_async_shared()
    b, h, w = _corner(box, boxes_h, boxes_w, IMAGES, HIGH, WIDE)
    tma.async_copy_shared_to_global(out_desc, [b, h, w, col0], room)


@gluon.jit
def _consume(
    shared, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, IMAGES: gl.constexpr,
    HIGH: gl.constexpr, WIDE: gl.constexpr, ACTIVATION: gl.constexpr,
    BIAS: gl.constexpr, C: gl.constexpr,
):  # fmt: skip
    """Own a box of pixels: multiply over all places of the kernel, then finish."""
    out_desc, bias_ptr, x_tiles, weight_tiles, rooms, full, empty, numbers = shared
    tiles_m, tiles_n, steps, of_out = numbers
    COUNT: gl.constexpr = BLOCK_N // PIECE
    count = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        m, n = place_of(tile, tiles_m, tiles_n)
        acc, count = summed(
            count, steps, x_tiles, weight_tiles, full, empty, BLOCK_N, STAGES, C
        )
        pieces = pieces_of(acc, COUNT)
        for i in gl.static_range(COUNT):
            _finish(
                pieces[i], m * CONSUMERS + C, n * BLOCK_N + i * PIECE, out_desc,
                bias_ptr, rooms.index(C * 2 + i % 2), of_out, ACTIVATION, BIAS, IMAGES,
                HIGH, WIDE, 1 if COUNT > 1 else 0,
            )  # fmt: skip
    tma.store_wait(0)


@gluon.jit
def _conv_kernel(
    x_desc, x_desc_1, x_desc_2, x_desc_3, weight_desc, out_desc, bias_ptr,
    boxes, boxes_h, boxes_w, channels, across, places, parts, padding,
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr, IMAGES: gl.constexpr,
    HIGH: gl.constexpr, WIDE: gl.constexpr, STRIDE: gl.constexpr,
    ACTIVATION: gl.constexpr, BIAS: gl.constexpr,
):  # fmt: skip
    tiles_m = gl.cdiv(boxes, CONSUMERS)
    tiles_n = gl.cdiv(channels, BLOCK_N)
    x_tiles = gl.allocate_shared_memory(
        x_desc.dtype, [STAGES * CONSUMERS, IMAGES, HIGH, WIDE, STEP], x_desc.layout
    )
    weight_tiles = gl.allocate_shared_memory(
        weight_desc.dtype, [STAGES, BLOCK_N, 1, STEP], weight_desc.layout
    )
    rooms = gl.allocate_shared_memory(
        out_desc.dtype, [2 * CONSUMERS, IMAGES, HIGH, WIDE, PIECE], out_desc.layout
    )
    full, empty = barriers(STAGES)
    shared = (
        out_desc, bias_ptr, x_tiles, weight_tiles, rooms, full, empty,
        (tiles_m, tiles_n, places * parts, (channels, boxes_h, boxes_w)),
    )  # fmt: skip
    asked = (
        (x_desc, x_desc_1, x_desc_2, x_desc_3), weight_desc, x_tiles, weight_tiles,
        full, empty,
        (tiles_m, tiles_n, across, places, parts, boxes_h, boxes_w, padding),
    )  # fmt: skip
    gl.warp_specialize([
        (_consume, (shared, BLOCK_N, STAGES, IMAGES, HIGH, WIDE, ACTIVATION, BIAS, 0)),
        (_consume, (shared, BLOCK_N, STAGES, IMAGES, HIGH, WIDE, ACTIVATION, BIAS, 1)),
        (_producer, (asked, BLOCK_N, STAGES, IMAGES, HIGH, WIDE, STRIDE)),
    ], [4, 1], [232, 24])  # fmt: skip


def refuses(x: torch.Tensor, weight: torch.Tensor, stride: int) -> str | None:
    """Say why this kernel cannot convolve; None where it can.

    Args:
        x: (images, rows, columns, channels), contiguous.
        weight: (out channels, rows, columns, channels), contiguous.
        stride: from one output pixel to the next.
    """
    if reason := not_here(x):
        return reason
    if stride not in (1, 2):
        return f"it takes a stride of 1 or 2, not {stride}"
    if x.shape[3] % 8 or weight.shape[0] % 8:
        return "TMA wants pixels at multiples of 16 bytes: channels by eights"
    if not x.numel() or x.data_ptr() % 16 or weight.data_ptr() % 16:
        return "TMA wants something, and at multiples of 16 bytes"
    if stride == 2 and min(x.shape[1:3]) < 2:
        return "a stride of 2 wants two rows and two columns"
    return None


@cache
def box_for(images: int, high: int, wide: int) -> Box:
    """Choose the 64 pixels of a box so that the fewest lie outside of the result."""

    def covered(box: Box) -> int:
        sizes = zip((images, high, wide), box, strict=True)
        count = 1
        for size, edge in sizes:
            count *= triton.cdiv(size, edge) * edge
        return count

    boxes = [
        Box(64 // (h * w), h, w)
        for h in (8, 4, 16, 2, 32, 1, 64)
        for w in (8, 16, 4, 32, 2, 64, 1)
        if h * w <= 64
    ]
    # Of equals the first: pixels that share most of what they read.
    return min(boxes, key=lambda box: (covered(box), box.images))


def convolved(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: int,
    padding: int, activation: str, block_n: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """Launch the kernel; ask ``refuses`` beforehand whether it can.

    Args:
        x: (images, rows, columns, channels), contiguous.
        weight: (out channels, kernel rows, kernel columns, channels), contiguous.
        bias: (out channels).
        stride: 1 or 2.
        padding: zeros on each side.
        activation: applied last, in fp32.
        block_n: columns of a tile: 256, 128 or 64; chosen when absent.

    Returns:
        (images, out rows, out columns, out channels).
    """
    images, high, wide, inner = x.shape
    channels, down, across, _ = weight.shape
    out_high = (high + 2 * padding - down) // stride + 1
    out_wide = (wide + 2 * padding - across) // stride + 1
    out = x.new_empty((images, out_high, out_wide, channels))
    if not out.numel():
        return out
    box = box_for(images, out_high, out_wide)
    boxes_h, boxes_w = triton.cdiv(out_high, box.high), triton.cdiv(out_wide, box.wide)
    boxes = triton.cdiv(images, box.images) * boxes_h * boxes_w
    count = processors(x.device.index or 0)
    n = block_n or _columns(triton.cdiv(boxes, 2), channels, count)
    planes = [x[:, h::stride, w::stride] for h in range(stride) for w in range(stride)]
    pixels = [described(plane, [*box, STEP.value]) for plane in planes]
    tiles = triton.cdiv(boxes, 2) * triton.cdiv(channels, n)
    flat = weight.view(channels, down * across, inner)
    held(_conv_kernel)[(min(tiles, count),)](
        *(pixels * (4 // len(pixels))), described(flat, [n, 1, STEP.value]),
        described(out, [*box, PIECE.value]), out if bias is None else bias,
        boxes, boxes_h, boxes_w, channels, across, down * across,
        triton.cdiv(inner, STEP.value), padding,
        BLOCK_N=n, STAGES=4 if n == 256 else 6, IMAGES=box.images, HIGH=box.high,
        WIDE=box.wide, STRIDE=stride, ACTIVATION=activation, BIAS=bias is not None,
        num_warps=4,
    )  # fmt: skip
    return out


def _columns(down: int, channels: int, count: int) -> int:
    """Choose the width of a tile: the least time in waves of programs."""

    def time(n: int) -> float:
        waves = triton.cdiv(down * triton.cdiv(channels, n), count)
        # A narrower tile reads the pixels as often for less work.
        return waves * (n + {256: 0, 128: 12, 64: 24}[n])

    return min((256, 128, 64), key=time)
