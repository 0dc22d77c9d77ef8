"""A product whose sum is spread over ranks, and the gradients."""

# mypy: ignore-errors

from __future__ import annotations

import torch.distributed as dist


# [exercise:row_parallel]
def row_parallel(h, weight, bias, grad):
    """Make h @ weight.T + bias of columns that are spread over ranks.

    h (tokens, in / n) is this rank's columns; weight (out, in) and bias
    (out,) are whole; grad (tokens, out) is y's, the same on each rank.
    Return y (tokens, out), dh (tokens, in / n), dw (out, in / n), db (out,).
    """
    # [hole]
    me, n = dist.get_rank(), dist.get_world_size()
    own = weight.chunk(n, dim=1)[me]
    y = h @ own.mT
    handle = dist.all_reduce(y, async_op=True)
    dh = grad @ own
    dw = grad.mT @ h
    db = grad.sum(0)
    handle.wait()
    return y + bias, dh, dw, db
    # [/hole]


# [/exercise]
