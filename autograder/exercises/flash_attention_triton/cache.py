"""Chapter 10's KV cache: one new token, and pieces of what it looks back on."""

from __future__ import annotations

import math

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, Case, Output, Outputs, Problem
from autograder.exercises.flash_attention_triton.shared import spread

SPLITS = 4


def decode_case(
    capacity: int, d: int, heads: int, kv_heads: int, regime: str = "ragged"
) -> Case:
    """Return a case: two sequences, whose caches have room for ``capacity`` keys."""
    said = {
        "full": "full",
        "ragged": "of several lengths",
        "large": "full, large logits",
        "low": "full, all logits near -600",
    }[regime]
    return Case(
        f"cache of {capacity}, {said}, heads = {heads}, kv_heads = {kv_heads}, d = {d}",
        {"capacity": capacity, "d": d, "heads": heads, "kv_heads": kv_heads},
        regime,
        torch.float16,
    )


# 2 * 2 KV heads of 200 keys and as many values, 50 a piece: a tile has room for more.
# And q for each piece; parts and lse once.
FIRST = (decode_case(200, 64, 4, 2, "full"), decode_case(150, 64, 3, 1))
SHORT = decode_case(1, 16, 2, 2)


def decode_problem(case: Case, generator: torch.Generator) -> Problem:
    """Ask for out of q, both caches and their lengths."""
    size, device = case.sizes, generator.device
    d, capacity = size["d"], size["capacity"]

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(2, *shape, generator=generator, device=device).half()

    q = normal(size["heads"], d)
    k, v = (normal(size["kv_heads"], capacity, d) for _ in range(2))
    # Later keys weigh more: pieces of a cache then differ in their log-sum-exp.
    k = k * torch.linspace(0.5, 2, capacity, device=device).half()[:, None]
    if case.regime == "large":
        q = q * 40
    elif case.regime == "low":
        q[..., 0], k[..., 0] = 60, -10 * math.sqrt(d)
    lengths = torch.full((2,), capacity, dtype=torch.int32, device=device)
    if case.regime == "ragged":
        lengths = torch.randint(
            1, capacity + 1, (2,), generator=generator, device=device
        ).int()
        lengths[0] = min(3, capacity)  # fewer keys than pieces
    out = {"out": Output(tuple(q.shape), torch.float16)}
    return Problem({"q": q, "k_cache": k, "v_cache": v + 0.5, "lengths": lengths}, out)


def spread_cache(arguments: Arguments) -> tuple[torch.Tensor, ...]:
    """Return q, k and v in float64, with a head of the cache for each of q's."""
    q = tensor(arguments, "q").double()
    shared = {
        "q": q,
        "k": tensor(arguments, "k_cache"),
        "v": tensor(arguments, "v_cache"),
    }
    return q, *(t.double() for t in spread(shared))


def pieces(
    arguments: Arguments, absolute: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend within each piece: (batch, heads, SPLITS, d) and its log-sum-exp.

    Args:
        arguments: of the exercise.
        absolute: take the values' magnitudes, for the tolerance.
    """
    q, k, v = spread_cache(arguments)
    v = v.abs() if absolute else v
    batch, heads, d = q.shape
    part = torch.zeros(batch, heads, SPLITS, d, dtype=q.dtype, device=q.device)
    lse = torch.full(part.shape[:3], -math.inf, dtype=q.dtype, device=q.device)
    for b, length in enumerate(tensor(arguments, "lengths").tolist()):
        s = torch.einsum("hd,hnd->hn", q[b], k[b]) / math.sqrt(d)
        size = -(-length // SPLITS)
        for i in range(SPLITS):
            own = slice(i * size, min((i + 1) * size, length))
            if own.start < own.stop:
                part[b, :, i] = torch.einsum(
                    "hn,hnd->hd", torch.softmax(s[:, own], -1), v[b, :, own]
                )
                lse[b, :, i] = s[:, own].logsumexp(-1)
    return part, lse


def decoded(arguments: Arguments, absolute: bool = False) -> Outputs:
    """Put the pieces together, by their log-sum-exp."""
    part, lse = pieces(arguments, absolute)
    return {"out": (part * torch.softmax(lse, -1)[..., None]).sum(2)}
