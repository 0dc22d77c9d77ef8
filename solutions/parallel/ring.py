"""Ring attention: each rank has a part of the tokens, and keys and values go round.

    out = sum_r exp(lse_r - lse) out_r        lse = log sum_r exp(lse_r)

A rank attends to the keys that it has while they are on their way to the next one. No
rank ever has all of them, so the length that fits grows with the ranks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from kernelwright.operators import autocast
from solutions.parallel._collectives import Group, pass_on, rank_and_size
from solutions.parallel.agreement import agree, share_of
from solutions.parallel.pieces import attend, gradients, merge


class _Part(NamedTuple):
    """Which of a rank's queries meet which of the keys that came by."""

    queries: slice
    keys: slice
    causal: bool


def split_tokens(
    x: torch.Tensor, rank: int, world: int, *, dim: int = 2, zigzag: bool = True
) -> torch.Tensor:
    """Return a rank's part of the tokens, as ``ring_attention`` wants it.

    Args:
        x: all tokens along ``dim``.
        rank: whose part.
        world: how many ranks; they divide the tokens, in zig-zag order twice.
        dim: of the tokens.
        zigzag: of 2 world pieces the r-th from the front and the r-th from the back,
            which together see as many keys as any other rank's do; else the r-th of
            world pieces.
    """
    if not zigzag:
        share_of(x.shape[dim], world, "the number of tokens")
        return x.chunk(world, dim)[rank].contiguous()
    share_of(x.shape[dim], 2 * world, "the number of tokens")
    pieces = x.chunk(2 * world, dim)
    return torch.cat((pieces[rank], pieces[2 * world - 1 - rank]), dim)


def join_tokens(
    parts: list[torch.Tensor], *, dim: int = 2, zigzag: bool = True
) -> torch.Tensor:
    """Put all ranks' parts, in rank order, back into the order of tokens."""
    if not zigzag:
        return torch.cat(parts, dim)
    halves = [part.chunk(2, dim) for part in parts]
    fronts, backs = (list(side) for side in zip(*halves, strict=True))
    return torch.cat(fronts + backs[::-1], dim)


def ring_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    zigzag: bool = True,
    group: Group = None,
    check: bool = True,
) -> torch.Tensor:
    """Attend to all ranks' keys: ``softmax(scale * q k^T + mask) v`` of this rank's q.

    Args:
        q: (batch, heads, tokens / n, head_dim), this rank's part of the tokens, as
            ``split_tokens`` makes it.
        k: (batch, kv_heads, tokens / n, head_dim), kv_heads a divisor of heads.
        v: as k.
        causal: a query sees no later key.
        scale: 1 / sqrt(head_dim) when absent.
        zigzag: which part a causal rank has, see ``split_tokens``. Without it the last
            rank has nearly twice the mean work, and the others wait for it.
        group: the ranks; all when absent.
        check: whether shapes are compared among ranks first; it waits for all of them.

    Returns:
        out, q's shape and dtype; gradients flow to q, k and v.

    Raises:
        ValueError: on every rank: shapes or dtypes that differ among ranks, an odd
            number of tokens in zig-zag order.

    Cost: 4 batch heads tokens^2 head_dim / n FLOPs a rank, half if causal; n - 1 times
    the bytes of its k and v sent, while it computes. Backward 10 for the 4, and n
    times dk and dv besides, in fp32. In memory one more pair of k and v.

    Source: Liu, Zaharia and Abbeel, *Ring Attention* (2023); Brandon et al., *Striped
    Attention* (2023), on balance.
    """
    if check:
        said = [f"{t.dtype} {tuple(t.shape)}" for t in (q, k, v)]
        agree(
            "the shapes of q, k and v",
            ", ".join(said),
            "Give every rank the same number of tokens, heads and sequences.",
            group,
        )
    q, k, v = autocast(q, k, v)
    if causal and zigzag and q.shape[2] % 2:
        raise ValueError(
            f"q has {q.shape[2]} tokens, an odd number; zig-zag order wants an even "
            "one: split_tokens makes it, or take zigzag=False."
        )
    if k.shape[2] != q.shape[2] or v.shape != k.shape or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"q is {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}; wanted as "
            "many tokens in each, k and v alike, and kv_heads a divisor of heads."
        )
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out: torch.Tensor = _RingAttention.apply(q, k, v, causal, scale, zigzag, group)
    return out


class _RingAttention(torch.autograd.Function):
    """Attention over a ring as one step of autograd."""

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        causal: bool,
        scale: float,
        zigzag: bool,
        group: Group,
    ) -> torch.Tensor:
        rank, size = rank_and_size(group)
        ctx.how = causal, scale, zigzag, group
        held = [k.contiguous(), v.contiguous()]
        out: torch.Tensor | None = None
        for step in range(size):
            following, handles = [], []
            if step < size - 1:
                following, handles = pass_on(held, group)
            part = _part(rank, (rank - step) % size, q.shape[2], causal, zigzag)
            if part is not None:
                keys, values = (t[:, :, part.keys] for t in held)
                own = q[:, :, part.queries]
                more, its = attend(own, keys, values, part.causal, scale)
                if out is None:  # at step 0 every query sees keys of its own rank
                    out, lse = more, its
                else:
                    there = part.queries
                    merge(out[:, :, there], lse[:, :, there], more, its)
            for handle in handles:
                handle.wait()
            held = following
        assert out is not None
        rounded = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, rounded, lse)
        return rounded

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        causal, scale, zigzag, group = ctx.how
        rank, size = rank_and_size(group)
        wide = torch.promote_types(q.dtype, torch.float32)
        grad = grad.contiguous()
        dq = torch.zeros_like(q, dtype=wide)
        held = [k.contiguous(), v.contiguous()]
        # The gradients of the keys that are here, as the ranks before have left them.
        slopes = [torch.zeros_like(t, dtype=wide) for t in held]
        coming: list[Any] = []
        for step in range(size):
            following, handles = [], []
            if step < size - 1:
                following, handles = pass_on(held, group)
            part = _part(rank, (rank - step) % size, q.shape[2], causal, zigzag)
            if part is not None:
                rows, columns = part.queries, part.keys
                found = gradients(
                    *(t[:, :, rows] for t in (grad, q)),
                    *(t[:, :, columns] for t in held),
                    out[:, :, rows],
                    lse[:, :, rows].contiguous(),
                    part.causal,
                    scale,
                )
                dq[:, :, rows] += found[0]
            for handle in coming:  # they travel while this rank computes
                handle.wait()
            if part is not None:
                for slope, more in zip(slopes, found[1:], strict=True):
                    slope[:, :, columns] += more
            for handle in handles:
                handle.wait()
            # One step more than keys make: at last they are with their owner.
            if size > 1:
                slopes, coming = pass_on(slopes, group)
            held = following
        for handle in coming:
            handle.wait()
        dk, dv = slopes
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None, None, None


def _part(
    rank: int, owner: int, tokens: int, causal: bool, zigzag: bool
) -> _Part | None:
    """Say who meets whom; ``None`` where a causal rank sees none of the keys."""
    everything, half = slice(None), tokens // 2
    if not causal or owner == rank:
        return _Part(everything, everything, causal)
    if not zigzag:
        return _Part(everything, everything, False) if owner < rank else None
    if owner < rank:  # all queries see the front half, none the back half
        return _Part(everything, slice(0, half), False)
    return _Part(slice(half, None), everything, False)  # the back queries see both
