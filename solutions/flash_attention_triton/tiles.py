"""What forward and backward share: how they are cut, load a tile, bound a walk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from solutions.flash_attention_triton.options import UNBOUNDED, Options


@dataclass(frozen=True)
class Tiles:
    """How a kernel is cut: queries and keys a step, warps, stages of the pipeline."""

    m: int
    n: int
    warps: int
    stages: int


def block_of(head_dim: int) -> int:
    """Pad a head to a power of two; tl.dot wants 16 at least."""
    return max(16, triton.next_power_of_2(head_dim))


@triton.jit
def load_tile(
    head, first, stride, length, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK: tl.constexpr, EDGE: tl.constexpr, TURNED: tl.constexpr = False,
):  # fmt: skip
    """Load BLOCK rows of a head from ``first`` on: (BLOCK, BLOCK_D), or turned.

    What lies past ``length`` or D is zeros. Where the tile begins is computed in 64
    bits, the place within it in 32. EDGE: not all rows need be there.
    """
    at, d = tl.arange(0, BLOCK), tl.arange(0, BLOCK_D)
    at = at[None, :] if TURNED else at[:, None]
    d = d[:, None] if TURNED else d[None, :]
    place = head + first.to(tl.int64) * stride + at * stride + d
    if EDGE or D != BLOCK_D:
        inside = (first + at < length) & (d < D)
        return tl.load(place, mask=inside, other=0.0)
    else:
        return tl.load(place)


@triton.jit
def keys_seen(
    m0, q_len, kv_len, first, last,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BOUNDED_LEFT: tl.constexpr, BOUNDED_RIGHT: tl.constexpr,
):  # fmt: skip
    """Bound the walk of a tile of queries over the keys, in whole tiles.

    Returns start, full, part, stop: some query sees keys start to stop, all queries
    see keys full to part.
    """
    start, stop, full, part = 0, kv_len, 0, kv_len // BLOCK_N * BLOCK_N
    last_row = tl.minimum(m0 + BLOCK_M, q_len) - 1
    if BOUNDED_LEFT:  # i + first <= j
        start = tl.maximum(0, m0 + first) // BLOCK_N * BLOCK_N
        full = tl.cdiv(tl.maximum(0, last_row + first), BLOCK_N) * BLOCK_N
    if BOUNDED_RIGHT:  # j <= i + last
        stop = tl.minimum(stop, tl.maximum(0, last_row + last + 1))
        part = tl.minimum(part, tl.maximum(0, m0 + last + 1) // BLOCK_N * BLOCK_N)
    full = tl.minimum(full, stop)
    part = tl.maximum(part, full)
    return start, full, part, stop


def optional(
    q: torch.Tensor, options: Options
) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Return mask, padding and what a kernel is told of the options.

    A tensor that there is none of is q's memory: it is passed, and never read.
    """
    mask = q if options.mask is None else options.mask
    padding = q if options.padding is None else options.padding
    left, right = options.bounded
    told = {
        "first": options.first if left else -UNBOUNDED,
        "last": options.last if right else UNBOUNDED,
        "p_drop": options.dropout_p, "seed": options.seed,
        "D": q.shape[3], "BLOCK_D": block_of(q.shape[3]),
        "BOUNDED_LEFT": left, "BOUNDED_RIGHT": right,
        "MASK": options.mask is not None, "FLOATING": mask.dtype.is_floating_point,
        "PADDING": options.padding is not None, "DROPOUT": options.dropout_p > 0,
        "PRECISION": "ieee",
    }  # fmt: skip
    return mask, padding, told
