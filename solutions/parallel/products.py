"""Two products that ranks share, with the one message that each needs, hidden.

Of ``y = act(x A^T) B^T`` each rank has some columns of the hidden layer: rows of A,
columns of B. Column products give each rank its own part and no message; row products
give each rank a summand of the whole, and the sum is the message. Backward it is the
other way round: the gradient of x is a sum over ranks, and that of the hidden layer is
each rank's own.

In ``sequence`` form x and y are each rank's own tokens: an all-gather before the first
product and a reduce-scatter after the second, together the bytes of one all-reduce.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from solutions.parallel._collectives import (
    Group,
    all_gather,
    all_reduce,
    rank_and_size,
    reduce_scatter,
)


class ColumnProduct(torch.autograd.Function):
    """``x A^T`` with this rank's rows of A, (out / n, in)."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, group: Group, sequence: bool
    ) -> torch.Tensor:
        """Multiply; x is (tokens, in), or in sequence form (tokens / n, in)."""
        ctx.group, ctx.sequence = group, sequence
        if sequence:
            x = gathered(x, group)
        ctx.save_for_backward(x, weight)
        return x @ weight.mT

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Send x's gradient while A's is computed: neither needs the other."""
        x, weight = ctx.saved_tensors
        whole = (grad @ weight).contiguous()
        if ctx.sequence:
            _, size = rank_and_size(ctx.group)
            d_x = whole.new_empty(len(whole) // size, whole.shape[1])
            handle = reduce_scatter(d_x, whole, ctx.group)
        else:
            d_x = whole
            handle = all_reduce(d_x, ctx.group)
        d_weight = grad.mT @ x if ctx.needs_input_grad[1] else None
        handle.wait()
        return d_x, d_weight, None, None


class RowProduct(torch.autograd.Function):
    """The sum over ranks of ``h B^T``, with this rank's columns of B, (out, in / n)."""

    @staticmethod
    def forward(
        ctx: Any,
        h: torch.Tensor,
        weight: torch.Tensor,
        group: Group,
        sequence: bool,
        chunks: int,
    ) -> torch.Tensor:
        """Multiply; h is (tokens, in / n). A chunk is sent while the next is made."""
        ctx.group, ctx.sequence = group, sequence
        ctx.save_for_backward(h, weight)
        if sequence:
            _, size = rank_and_size(group)
            whole = h @ weight.mT
            out = whole.new_empty(len(whole) // size, whole.shape[1])
            reduce_scatter(out, whole, group).wait()
            return out
        out = h.new_empty(len(h), len(weight))
        bounds = [len(h) * at // chunks for at in range(chunks + 1)]
        handles = []
        for begin, end in pairwise(bounds):
            torch.mm(h[begin:end], weight.mT, out=out[begin:end])
            handles.append(all_reduce(out[begin:end], group))
        for handle in handles:
            handle.wait()
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Pass the gradient to every summand as it is: no message, unless gathered."""
        h, weight = ctx.saved_tensors
        if ctx.sequence:
            grad = gathered(grad.contiguous(), ctx.group)
        d_weight = grad.mT @ h if ctx.needs_input_grad[1] else None
        return grad @ weight, d_weight, None, None, None


class AddedUp(torch.autograd.Function):
    """A parameter that every rank has, and uses with tokens of its own."""

    @staticmethod
    def forward(ctx: Any, parameter: torch.Tensor, group: Group) -> torch.Tensor:
        """Return it as it is."""
        ctx.group = group
        return parameter.view_as(parameter)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Add up the gradients, of which each rank has its tokens' part."""
        grad = grad.clone()
        all_reduce(grad, ctx.group).wait()
        return grad, None


class GatheredColumns(torch.autograd.Function):
    """All ranks' columns side by side; its gradient is this rank's part."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, group: Group) -> torch.Tensor:
        """Gather (tokens, out / n) to (tokens, out)."""
        ctx.rank, ctx.size = rank_and_size(group)
        stacked = gathered(own.contiguous(), group)
        return stacked.view(ctx.size, *own.shape).transpose(0, 1).reshape(len(own), -1)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Take what this rank gave: all ranks have the same gradient."""
        return grad.chunk(ctx.size, 1)[ctx.rank].contiguous(), None


def gathered(own: torch.Tensor, group: Group) -> torch.Tensor:
    """Return all ranks' rows, one rank behind the other."""
    _, size = rank_and_size(group)
    out = own.new_empty(size * len(own), *own.shape[1:])
    all_gather(out, own.contiguous(), group).wait()
    return out
