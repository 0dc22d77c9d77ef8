"""Linear layers and an MLP whose weights are spread over ranks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.operators import autocast
from solutions.parallel._collectives import Group, rank_and_size
from solutions.parallel.agreement import agree, share_of
from solutions.parallel.products import (
    AddedUp,
    ColumnProduct,
    GatheredColumns,
    RowProduct,
)


class ColumnParallelLinear(nn.Module):
    """``y = x W^T + b``, of whose columns each rank has its part.

    The parameters are this rank's part of what ``nn.Linear`` would draw from the same
    seed: seed all ranks alike.

    Args:
        in_features, out_features: of the whole layer; the ranks divide out_features.
        bias: whether b is added.
        group: the ranks; all when absent.
        gather_output: whether every rank is given all columns, by an all-gather.
        sequence_parallel: x is this rank's tokens, which are gathered first.
        device, dtype: of the parameters.

    Raises:
        ValueError: on every rank: sizes that the ranks do not divide, sizes or shapes
            that differ among ranks.

    Cost: 2 tokens in out / n FLOPs a rank; forward no message, backward one all-reduce
    of x's gradient, while the weight's is computed.

    Source: Shoeybi et al., *Megatron-LM* (2019), section 3; Korthikanti et al.,
    *Reducing Activation Recomputation* (2022), section 4.2.2.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        group: Group = None,
        gather_output: bool = False,
        sequence_parallel: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.group, self.gather_output = group, gather_output
        self.sequence_parallel = sequence_parallel
        rank, size = rank_and_size(group)
        _agree_on_sizes(in_features, out_features, group)
        share_of(out_features, size, "out_features")
        whole = nn.Linear(in_features, out_features, bias, device, dtype)
        self.weight = _own(whole.weight, rank, size, 0)
        self.bias = _own(whole.bias, rank, size, 0) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (..., out / n), or (..., out) where columns are gathered."""
        _agree_on_input(x, self.group)
        y = column_product(x, self.weight, self.group, self.sequence_parallel)
        if self.bias is not None:
            y = y + self.bias.to(y.dtype)
        if self.gather_output:
            flat = y.reshape(-1, y.shape[-1])
            y = GatheredColumns.apply(flat, self.group).view(*y.shape[:-1], -1)
        return y


class RowParallelLinear(nn.Module):
    """``y = x W^T + b``, where each rank has some columns of x and of W.

    Args:
        in_features, out_features: of the whole layer; the ranks divide in_features.
        bias: whether b is added, once, to the sum.
        group: the ranks; all when absent.
        input_is_parallel: x is this rank's columns, as ``ColumnParallelLinear`` leaves
            them; else it is the whole x, of which this rank takes its own.
        sequence_parallel: y is this rank's tokens, by a reduce-scatter.
        chunks: parts of the tokens; one is summed while the next is multiplied.
        device, dtype: of the parameters.

    Raises:
        ValueError: on every rank: sizes that the ranks do not divide, sizes or shapes
            that differ among ranks.

    Cost: 2 tokens in out / n FLOPs a rank; forward one all-reduce of y.

    Source: Shoeybi et al., *Megatron-LM* (2019), section 3.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        group: Group = None,
        input_is_parallel: bool = True,
        sequence_parallel: bool = False,
        chunks: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.group, self.input_is_parallel = group, input_is_parallel
        self.sequence_parallel, self.chunks = sequence_parallel, chunks
        self.rank, self.size = rank_and_size(group)
        _agree_on_sizes(in_features, out_features, group)
        share_of(in_features, self.size, "in_features")
        whole = nn.Linear(in_features, out_features, bias, device, dtype)
        self.weight = _own(whole.weight, self.rank, self.size, 1)
        self.bias = nn.Parameter(whole.bias.detach()) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (..., out): of all tokens, or in sequence form of this rank's."""
        if not self.input_is_parallel:
            x = _OwnColumns.apply(x, self.group)
        _agree_on_input(x, self.group)
        y = row_product(x, self.weight, self.group, self.sequence_parallel, self.chunks)
        if self.bias is None:
            return y
        bias = self.bias
        if self.sequence_parallel:
            bias = AddedUp.apply(bias, self.group)
        return y + bias.to(y.dtype)


class ParallelMLP(nn.Module):
    """The MLP of a transformer over ranks: one all-reduce forward, one backward.

    ``gelu(x A^T + a) B^T + b``; or gated, as Llama has it, ``(silu(x G^T) * x U^T)
    D^T`` without biases.

    Args:
        d_model, d_ff: sizes; the ranks divide d_ff.
        gated: SwiGLU in the place of GELU.
        group: the ranks; all when absent.
        norm: an RMSNorm of x first, as in a block.
        sequence_parallel: x and the result are this rank's tokens, and so is what the
            norm works on: an n-th of its time and memory.
        chunks: of the tokens; the sum of one is hidden behind the product of the next.
        device, dtype: of the parameters.

    Raises:
        ValueError: on every rank: sizes that the ranks do not divide, or that differ.

    Cost: 4 tokens d_model d_ff / n FLOPs a rank forward, gated 6; either way one
    all-reduce of tokens x d_model numbers, or its two halves.

    Source: Shoeybi et al., *Megatron-LM* (2019), section 3.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        gated: bool = False,
        group: Group = None,
        norm: bool = False,
        sequence_parallel: bool = False,
        chunks: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.gated, self.group = gated, group
        self.sequence_parallel = sequence_parallel
        rank, size = rank_and_size(group)
        share_of(d_ff, size, "d_ff")
        where = {"device": device, "dtype": dtype}
        self.norm = nn.Parameter(torch.ones(d_model, **where)) if norm else None  # type: ignore[arg-type]
        if gated:
            # One product for both: each rank has the same columns of gate and up.
            _agree_on_sizes(d_model, d_ff, group)
            pair = [nn.Linear(d_model, d_ff, False, device, dtype) for _ in range(2)]
            parts = [_own(one.weight, rank, size, 0) for one in pair]
            self.gate_up = nn.Parameter(torch.cat([part.detach() for part in parts]))
        else:
            self.up = ColumnParallelLinear(
                d_model,
                d_ff,
                group=group,
                sequence_parallel=sequence_parallel,
                device=device,
                dtype=dtype,
            )
        self.down = RowParallelLinear(
            d_ff,
            d_model,
            not gated,
            group=group,
            sequence_parallel=sequence_parallel,
            chunks=chunks,
            device=device,
            dtype=dtype,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x's shape."""
        if self.norm is not None:
            weight = self.norm
            if self.sequence_parallel:
                weight = AddedUp.apply(weight, self.group)
            x = F.rms_norm(x, x.shape[-1:], weight, 1e-6)
        if not self.gated:
            out: torch.Tensor = self.down(F.gelu(self.up(x)))
            return out
        _agree_on_input(x, self.group)
        both = column_product(x, self.gate_up, self.group, self.sequence_parallel)
        gate, up = both.chunk(2, -1)
        out = self.down(F.silu(gate) * up)
        return out


def column_product(
    x: torch.Tensor, weight: torch.Tensor, group: Group, sequence: bool = False
) -> torch.Tensor:
    """Return ``x weight^T`` with autograd over ranks; x is (..., in)."""
    x, weight = autocast(x, weight)
    y: torch.Tensor = ColumnProduct.apply(_rows(x), weight, group, sequence)
    return y.view(*_leading(x, group, sequence, gather=True), -1)


def row_product(
    x: torch.Tensor,
    weight: torch.Tensor,
    group: Group,
    sequence: bool = False,
    chunks: int = 1,
) -> torch.Tensor:
    """Return the sum over ranks of ``x weight^T`` with autograd; x is (..., in / n)."""
    x, weight = autocast(x, weight)
    _, size = rank_and_size(group)
    if sequence:
        share_of(x.shape[0], size, "the number of tokens (the first dimension)")
    y: torch.Tensor = RowProduct.apply(_rows(x), weight, group, sequence, chunks)
    return y.view(*_leading(x, group, sequence, gather=False), -1)


class _OwnColumns(torch.autograd.Function):
    """This rank's columns of an x that every rank has; all ranks' gradients back."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor, group: Group) -> torch.Tensor:
        rank, size = rank_and_size(group)
        ctx.group = group  # type: ignore[attr-defined]
        return x.chunk(size, -1)[rank].contiguous()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        flat = _rows(grad)
        whole = GatheredColumns.apply(flat, ctx.group)  # type: ignore[attr-defined]
        return whole.view(*grad.shape[:-1], -1), None


def _own(weight: torch.Tensor, rank: int, size: int, dim: int) -> nn.Parameter:
    return nn.Parameter(weight.detach().chunk(size, dim)[rank].clone())


def _rows(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, x.shape[-1]).contiguous()


def _leading(
    x: torch.Tensor, group: Group, sequence: bool, *, gather: bool
) -> tuple[int, ...]:
    """Return x's dimensions but the last; ranks share the first in sequence form."""
    shape = list(x.shape[:-1])
    if sequence:
        _, size = rank_and_size(group)
        shape[0] = shape[0] * size if gather else shape[0] // size
    return tuple(shape)


def _agree_on_sizes(in_features: int, out_features: int, group: Group) -> None:
    agree(
        "the layer's sizes",
        f"{in_features} to {out_features}",
        "Build the same layer on every rank.",
        group,
    )


def _agree_on_input(x: torch.Tensor, group: Group) -> None:
    """Compare x's shapes; not on a GPU, which nobody waits for in every layer."""
    if x.device.type == "cpu":
        agree(
            "the shapes of x",
            f"{x.dtype} {tuple(x.shape)}",
            "Give every rank of the group the same number of tokens.",
            group,
        )
