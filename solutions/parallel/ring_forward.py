"""Attention to keys and values that go round a ring of ranks: forward."""

# mypy: ignore-errors

from __future__ import annotations

import torch
import torch.distributed as dist


# [exercise:ring_attention]
def attend(q, k, v, causal):
    """Return attention to some keys, and each row's log-sum-exp."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    lse = scores.logsumexp(-1)
    return torch.exp(scores - lse[..., None]) @ v, lse


def ring_attention(q, k, v, causal):
    """Attend to the keys of all ranks; all is (heads, tokens / n, d).

    Rank r has the r-th part of the tokens; if causal, no query sees a
    later key. Return out (heads, tokens / n, d) and lse (heads, tokens / n).
    """
    # [hole]
    me, n = dist.get_rank(), dist.get_world_size()
    held = torch.stack((k, v))
    for step in range(n):
        if step < n - 1:
            coming = torch.empty_like(held)
            sent = dist.isend(held, (me + 1) % n)
            got = dist.irecv(coming, (me - 1) % n)
        owner = (me - step) % n
        if owner <= me or not causal:
            more, its = attend(q, *held, causal and owner == me)
            if step == 0:
                out, lse = more, its
            else:
                both = torch.logaddexp(lse, its)
                out = out * torch.exp(lse - both)[..., None]
                out += more * torch.exp(its - both)[..., None]
                lse = both
        if step < n - 1:
            got.wait()
            sent.wait()
            held = coming
    return out, lse
    # [/hole]


# [/exercise]
