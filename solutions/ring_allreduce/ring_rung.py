"""The ladder: both halves, in pieces that travel while others are added."""

from __future__ import annotations

import torch
import torch.distributed as dist


# [exercise:ring_all_reduce]
def ring_all_reduce(x: torch.Tensor, pieces: int) -> torch.Tensor:
    """Return the sum over all ranks, on every rank."""
    me, n = dist.get_rank(), dist.get_world_size()
    out = x.clone()
    chunks = out.tensor_split(n)
    # [hole]
    for step in range(2 * (n - 1)):
        give = chunks[(me - step) % n].tensor_split(pieces)
        take = chunks[(me - step - 1) % n].tensor_split(pieces)
        # In the first half what comes is added, in the second it is the sum.
        adds = step < n - 1
        into = [torch.empty_like(piece) for piece in take] if adds else take
        coming = [dist.irecv(piece, (me - 1) % n) for piece in into]
        sending = [dist.isend(piece, (me + 1) % n) for piece in give]
        for receive, piece, got in zip(coming, take, into, strict=True):
            receive.wait()
            if adds:
                piece += got
        for send in sending:
            send.wait()
    # [/hole]
    return out


# [/exercise]
