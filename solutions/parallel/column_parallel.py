"""A product whose columns are spread over ranks, and the gradients."""

# mypy: ignore-errors

from __future__ import annotations

import torch.distributed as dist


# [exercise:column_parallel]
def column_parallel(x, weight, grad):
    """Make this rank's columns of x @ weight.T, and all gradients of it.

    x (tokens, in) and weight (out, in) are whole, the same on each rank;
    grad (tokens, out / n) is that of the columns that this rank makes.
    Return y (tokens, out / n), dx (tokens, in), dw (out / n, in).
    """
    # [hole]
    me, n = dist.get_rank(), dist.get_world_size()
    own = weight.chunk(n)[me]
    y = x @ own.mT
    dx = grad @ own
    handle = dist.all_reduce(dx, async_op=True)
    dw = grad.mT @ x
    handle.wait()
    return y, dx, dw
    # [/hole]


# [/exercise]
