"""The detective's answer, and what the learner is given."""

from __future__ import annotations

import torch
import torch.distributed as dist


# [exercise:ring_deadlock]
def ring_deadlock(x: torch.Tensor) -> torch.Tensor:
    """Return the sum over all ranks, on every rank."""
    me, n = dist.get_rank(), dist.get_world_size()
    right, left = (me + 1) % n, (me - 1) % n
    total, travels = x.clone(), x.clone()
    # [hole]
    # [broken]
    # got = torch.empty_like(x)
    # for _ in range(n - 1):
    #     dist.send(travels, right)
    #     dist.recv(got, left)
    #     travels = got
    #     total += got
    # [/broken]
    for _ in range(n - 1):
        got = torch.empty_like(x)
        if me % 2 == 0:
            dist.send(travels, right)
            dist.recv(got, left)
        else:
            dist.recv(got, left)
            dist.send(travels, right)
        travels = got
        total += got
    # [/hole]
    return total


# [/exercise]
