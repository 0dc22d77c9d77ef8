"""Kernels around a learner's part of one: what takes a single tile in, and no more.

The exercises of attention in Triton ask for the function that takes a tile; here are
the walks that call it, so that it is judged by what they make of it.
"""

# A kernel's parameters have Triton's types, which mypy does not know.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernelwright.rows import load_rows, store_rows

_TILE = 64


@triton.jit
def _absorbing_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, n, scale,
    absorb: tl.constexpr, D: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1) * n
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    q = load_rows(q_ptr, head, rows, n, D)
    most = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    acc = tl.zeros([TILE, D], tl.float32)
    for first in tl.range(0, n, TILE):
        cols = first + tl.arange(0, TILE)
        k = load_rows(k_ptr, head, cols, n, D)
        v = load_rows(v_ptr, head, cols, n, D)
        seen = (cols[None, :] < n) & (rows[:, None] >= 0)
        most, total, acc = absorb(q, k, v, seen, scale, most, total, acc)
    store_rows(out_ptr, head, rows, n, acc / total[:, None], D)


def adapt_absorb(
    absorb: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> torch.Tensor:
    """Attend by walking over all keys with the learner's ``absorb``."""
    batch, heads, n, d = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(n, _TILE), batch * heads)
    _absorbing_kernel[grid](q, k, v, out, n, d**-0.5, absorb=absorb, D=d, TILE=_TILE)
    return out


@triton.jit
def _gradients_kernel(
    q_ptr, k_ptr, v_ptr, grad_ptr, lse_ptr, dot_ptr, dq_ptr, dk_ptr, dv_ptr, n, scale,
    tile_gradients: tl.constexpr, D: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    head, mine = tl.program_id(1) * n, tl.program_id(0) * TILE
    at, d = tl.arange(0, TILE), tl.arange(0, D)
    cols = mine + at
    k = load_rows(k_ptr, head, cols, n, D)
    v = load_rows(v_ptr, head, cols, n, D)
    dk = tl.zeros([TILE, D], tl.float32)
    dv = tl.zeros([TILE, D], tl.float32)
    for first in tl.range(mine, n, TILE):
        r = first + at
        q = load_rows(q_ptr, head, r, n, D)
        g = load_rows(grad_ptr, head, r, n, D)
        lse = tl.load(lse_ptr + head + r, mask=r < n, other=0.0)
        dot = tl.load(dot_ptr + head + r, mask=r < n, other=0.0)
        seen = (r[:, None] >= cols[None, :]) & (r[:, None] < n)
        dq, dk, dv = tile_gradients(q, k, v, g, lse, dot, seen, scale, dk, dv)
        place = dq_ptr + (head + r)[:, None] * D + d[None, :]
        tl.atomic_add(place, dq, mask=r[:, None] < n)
    store_rows(dk_ptr, head, cols, n, dk, D)
    store_rows(dv_ptr, head, cols, n, dv, D)


def adapt_gradients(
    tile_gradients: Any,
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Differentiate causal attention with the learner's ``tile_gradients``."""
    batch, heads, n, d = q.shape
    dot = (grad.float() * out.float()).sum(-1)
    dq = torch.zeros_like(q, dtype=torch.float32)
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    grid = (triton.cdiv(n, _TILE), batch * heads)
    _gradients_kernel[grid](
        q, k, v, grad, lse, dot, dq, dk, dv, n, d**-0.5,
        tile_gradients=tile_gradients, D=d, TILE=_TILE,
    )  # fmt: skip
    return dq.to(q.dtype), dk, dv


def adapt_pieces(decode_pieces: Any, q: torch.Tensor, *cache: torch.Tensor) -> Any:
    """Return the rows of a group's heads alone, without those that fill the tile."""
    made = decode_pieces(q, *cache)
    if not isinstance(made, tuple) or len(made) != 2:
        return made
    part, lse = made
    group = q.shape[1] // cache[0].shape[1]
    # Weights are rounded to 16 bits, and so is what is judged.
    return part[:, :, :group].to(q.dtype), lse[:, :, :group].contiguous()
