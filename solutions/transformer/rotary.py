"""Rotary embedding: heads split, and turned by their token's position."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.operators import operator
from solutions.transformer.kernels import rotate_kernel

Heads = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
_tables: dict[tuple[Any, ...], tuple[torch.Tensor, torch.Tensor]] = {}


def tables(
    length: int, head_dim: int, base: float, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines of each position's angles, made once.

        angle[p, i] = p * base^(-2 i / head_dim)

    Args:
        length: positions wanted; more may come back.
        head_dim: of a head, even.
        base: the slowest pair turns once in about 2 pi base positions.
        device: where they are to be.

    Returns:
        Two tensors of (positions, head_dim / 2), float32.
    """
    key = (head_dim, base, device)
    if key not in _tables or len(_tables[key][0]) < length:
        size = max(1024, 1 << (length - 1).bit_length())
        power = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        angle = torch.arange(size, dtype=torch.float64)[:, None] * base**-power
        cosine, sine = (t.float().to(device) for t in (angle.cos(), angle.sin()))
        _tables[key] = cosine, sine
    return _tables[key]


def rotate_plain(
    joined: torch.Tensor, positions: torch.Tensor, heads: int, kv_heads: int,
    base: float, reach: int,
) -> Heads:  # fmt: skip
    """Split and turn with torch's operations; arguments as ``rotate``."""
    batch, length, width = joined.shape
    head_dim = width // (heads + 2 * kv_heads)
    split = joined.view(batch, length, -1, head_dim).transpose(1, 2)
    q, k, v = split.split((heads, kv_heads, kv_heads), 1)
    cosines, sines = tables(reach, head_dim, base, joined.device)
    cosine = cosines[positions][:, None].to(joined.dtype)  # (batch, 1, length, half)
    sine = sines[positions][:, None].to(joined.dtype)

    def turned(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return torch.cat(
            (first * cosine - second * sine, second * cosine + first * sine), -1
        )

    return turned(q), turned(k), v


def rotate(
    joined: torch.Tensor, positions: torch.Tensor, heads: int, kv_heads: int,
    base: float, reach: int,
) -> Heads:  # fmt: skip
    """Split a joined projection into heads, and turn those of q and k.

        (x, y) -> (x cos - y sin, y cos + x sin),  x a head's first half, y the rest

    Args:
        joined: (batch, length, (heads + 2 kv_heads) head_dim): q's heads, k's, v's.
        positions: whole numbers (batch, length).
        heads: of the queries.
        kv_heads: of the keys, and of the values.
        base: as ``tables`` has it.
        reach: every position is below it.

    Returns:
        q (batch, heads, length, head_dim), k and v with kv_heads; contiguous on a GPU.

    Cost: one pass, joined read and as much written; backward the same. On a CPU, and
    for float64, plain torch.

    Source: Su and others, RoFormer (2021), section 3.4.2; the halves as in Llama.
    """
    if not joined.is_cuda or joined.dtype == torch.float64:
        return rotate_plain(joined, positions, heads, kv_heads, base, reach)
    head_dim = joined.shape[2] // (heads + 2 * kv_heads)
    both = tables(reach, head_dim, base, joined.device)
    made: Heads = _rotate(joined, positions, *both, heads, kv_heads)
    return made


def append(
    joined: torch.Tensor, positions: torch.Tensor, heads: int, base: float,
    keys: torch.Tensor, values: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Turn new tokens' heads; store keys and values in a cache, and return q.

    Args:
        joined: as for ``rotate``.
        positions: likewise; each names the row of the cache that is written.
        heads: likewise.
        base: likewise.
        keys: (batch, kv_heads, max_len, head_dim), written at the positions.
        values: as keys.
    """
    batch, length, _ = joined.shape
    head_dim = keys.shape[3]
    q = joined.new_empty(batch, heads, length, head_dim)
    cosines, sines = tables(keys.shape[2], head_dim, base, joined.device)
    _launch(joined, (q, keys, values), positions, cosines, sines, store=True)
    return q


@operator("rotary")
def _rotate(
    joined: torch.Tensor, positions: torch.Tensor, cosines: torch.Tensor,
    sines: torch.Tensor, heads: int, kv_heads: int,
) -> Heads:  # fmt: skip
    made = _empty(joined, heads, kv_heads)
    _launch(joined.contiguous(), made, positions, cosines, sines)
    return made


@operator("rotary_backward")
def _rotate_back(
    dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor, positions: torch.Tensor,
    cosines: torch.Tensor, sines: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    joined = _empty_joined(dq, dk)
    ready = tuple(t if t.stride(-1) == 1 else t.contiguous() for t in (dq, dk, dv))
    _launch(joined, ready, positions, cosines, sines, back=True)
    return joined


@_rotate.register_fake
def _(
    joined: torch.Tensor, positions: torch.Tensor, cosines: torch.Tensor,
    sines: torch.Tensor, heads: int, kv_heads: int,
) -> Heads:  # fmt: skip
    return _empty(joined, heads, kv_heads)


@_rotate_back.register_fake
def _(
    dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor, *rest: torch.Tensor
) -> torch.Tensor:
    return _empty_joined(dq, dk)


def _keep_places(ctx: Any, inputs: tuple[Any, ...], output: Heads) -> None:
    ctx.save_for_backward(*inputs[1:4])


def _gradient(ctx: Any, *slopes: torch.Tensor) -> tuple[Any, ...]:
    return _rotate_back(*slopes, *ctx.saved_tensors), None, None, None, None, None


_rotate.register_autograd(_gradient, setup_context=_keep_places)


def _empty(joined: torch.Tensor, heads: int, kv_heads: int) -> Heads:
    batch, length, width = joined.shape
    size = width // (heads + 2 * kv_heads)
    q = joined.new_empty(batch, heads, length, size)
    k, v = (joined.new_empty(batch, kv_heads, length, size) for _ in range(2))
    return q, k, v


def _empty_joined(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    batch, heads, length, size = q.shape
    return q.new_empty(batch, length, (heads + 2 * k.shape[1]) * size)


def _launch(
    joined: torch.Tensor, split: tuple[torch.Tensor, ...], positions: torch.Tensor,
    cosines: torch.Tensor, sines: torch.Tensor, back: bool = False, store: bool = False,
) -> None:  # fmt: skip
    q, k, v = split
    batch, length, width = joined.shape
    half, heads = q.shape[3] // 2, q.shape[1]
    block = max(2, 1 << (half - 1).bit_length())
    rotate_kernel[(batch * length, 3)](
        joined, q, k, v, positions, cosines, sines, width,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], length, heads, k.shape[1],
        HALF=half, BLOCK=block, BACK=back, APPEND=store, num_warps=1,
        HEADS=max(1, min(1 << (heads - 1).bit_length(), 512 // block)),
    )  # fmt: skip
