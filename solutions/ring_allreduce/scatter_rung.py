"""Rung 2: n - 1 steps round the ring, after which a rank holds one whole sum."""

from __future__ import annotations

import torch
import torch.distributed as dist


# [exercise:reduce_scatter]
def reduce_scatter(parts: torch.Tensor) -> torch.Tensor:
    """Return the sum of row r over all ranks, on rank r."""
    me, n = dist.get_rank(), dist.get_world_size()
    parts = parts.clone()
    # [hole]
    for step in range(n - 1):
        give, take = (me - 1 - step) % n, (me - 2 - step) % n
        got = torch.empty_like(parts[take])
        sending = dist.isend(parts[give], (me + 1) % n)
        dist.recv(got, (me - 1) % n)
        sending.wait()
        parts[take] += got
    # [/hole]
    return parts[me]


# [/exercise]
