"""Attention to some of the keys: out and log-sum-exp, gradients, and two put together.

On a GPU chapter 10's kernels; on the CPU, and for float64, plain torch.
"""

from __future__ import annotations

import torch

from solutions.flash_attention_triton import backward, forward


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return out in float32 (float64 of float64), and each row's log-sum-exp."""
    if _by_kernel(q):
        out, lse = forward(q, k, v, causal=causal, scale=scale)
        return out.float(), lse
    scores = _scores(q, k, causal, scale)
    lse = scores.logsumexp(-1)
    weights = (scores - lse[..., None]).exp()
    return weights @ _repeated(v, q), lse


def gradients(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return these keys' part of dq, and their dk and dv.

    ``out`` and ``lse`` are of all keys: exp(score - lse) is then a weight of the whole
    row, whichever keys are at hand.
    """
    if _by_kernel(q):
        return backward(grad, q, k, v, out, lse, causal=causal, scale=scale)
    wide = _wide(q)
    grad, out = grad.to(wide), out.to(wide)
    weights = (_scores(q, k, causal, scale) - lse[..., None]).exp()
    dot = (grad * out).sum(-1, keepdim=True)
    slopes = weights * (grad @ _repeated(v, q).mT - dot) * scale
    dq = slopes @ _repeated(k, q)
    dk, dv = slopes.mT @ q.to(wide), weights.mT @ grad
    shape = (k.shape[0], k.shape[1], -1, *k.shape[2:])
    return dq, dk.view(shape).sum(2), dv.view(shape).sum(2)


def merge(
    out: torch.Tensor, lse: torch.Tensor, more: torch.Tensor, its: torch.Tensor
) -> None:
    """Put attention to other keys in, in place: each weighs by its exp(lse)."""
    both = torch.logaddexp(lse, its)
    out.mul_((lse - both).exp()[..., None]).add_(more * (its - both).exp()[..., None])
    lse.copy_(both)


def _by_kernel(q: torch.Tensor) -> bool:
    return q.device.type == "cuda" and q.dtype != torch.float64


def _wide(q: torch.Tensor) -> torch.dtype:
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def _repeated(kv: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return kv.to(_wide(q)).repeat_interleave(q.shape[1] // kv.shape[1], dim=1)


def _scores(
    q: torch.Tensor, k: torch.Tensor, causal: bool, scale: float
) -> torch.Tensor:
    scores = q.to(_wide(q)) @ _repeated(k, q).mT * scale
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores
