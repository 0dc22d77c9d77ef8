"""Tensor parallel, the sharded optimizer, ring attention: one process's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from solutions.parallel import (
    ColumnParallelLinear,
    DistributedDataParallel,
    ParallelMLP,
    RowParallelLinear,
    ShardedOptimizer,
    join_tokens,
    ring_attention,
    split_tokens,
)
from solutions.parallel._collectives import all_gather
from tests.solutions.parallel_cases import on_ranks, values
from tests.solutions.test_parallel import BATCH, batches, mean_loss, own, small_model

STEPS = 50
D, FF = 10, 12  # which 1, 2, 3 and 4 ranks divide
RANKS = (1, 2, 3, 4)


class PlainMLP(nn.Module):
    """What ParallelMLP is on one process, drawn in the same order."""

    def __init__(self, gated: bool, norm: bool) -> None:
        super().__init__()
        self.gated, self.norm = gated, norm
        self.scale = nn.Parameter(torch.ones(D))
        self.first = nn.ModuleList(
            nn.Linear(D, FF, not gated) for _ in range(1 + gated)
        )
        self.down = nn.Linear(FF, D, not gated)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.norm:
            x = F.rms_norm(x, (D,), self.scale, 1e-6)
        if not self.gated:
            return self.down(F.gelu(self.first[0](x)))
        return self.down(F.silu(self.first[0](x)) * self.first[1](x))


def mlp_losses(make: Callable[[], nn.Module], sequence: bool) -> list[float]:
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for x, _ in batches(STEPS):
        # A target that an MLP can learn, of the same shape.
        target = x.roll(1, 1) * x.sigmoid()
        if sequence:
            x, target = own(x), own(target)
        # A rank's tokens are an n-th of the mean: all their gradients are added up.
        part = len(x) / BATCH
        loss = F.mse_loss(model(x), target)
        losses.append(mean_loss(loss))
        optimizer.zero_grad()
        (part * loss).backward()
        optimizer.step()
    return losses


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(("sequence", "chunks"), [(False, 1), (False, 3), (True, 1)])
def test_tensor_parallel_has_one_process_s_losses(
    ranks: int, gated: bool, sequence: bool, chunks: int
) -> None:
    def run() -> list[float]:
        return mlp_losses(
            lambda: ParallelMLP(
                D, FF, gated=gated, norm=True, sequence_parallel=sequence, chunks=chunks
            ),
            sequence,
        )

    alone = mlp_losses(lambda: PlainMLP(gated, True), False)
    assert sum(alone[-9:]) < 0.9 * sum(alone[:9])  # it learns
    for losses in on_ranks(ranks, run):
        assert losses == pytest.approx(alone, rel=1e-5)


def _whole_layers() -> Any:
    torch.manual_seed(0)
    column = ColumnParallelLinear(6, 8, gather_output=True)
    row = RowParallelLinear(8, 6, input_is_parallel=False)
    x = torch.linspace(-1, 1, 30).view(5, 6).requires_grad_()
    out = row(column(x).tanh())
    out.square().sum().backward()
    return values([out, x.grad])


def test_a_layer_may_begin_and_end_whole() -> None:
    torch.manual_seed(0)
    column, row = nn.Linear(6, 8), nn.Linear(8, 6)
    x = torch.linspace(-1, 1, 30).view(5, 6).requires_grad_()
    out = row(column(x).tanh())
    out.square().sum().backward()
    for mine, slope in on_ranks(2, _whole_layers):
        np.testing.assert_allclose(mine, values(out), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(slope, values(x.grad), rtol=1e-5, atol=1e-6)


def _odd(what: str) -> None:
    rank = dist.get_rank()
    if what == "columns":
        ColumnParallelLinear(4, 7)
    elif what == "rows":
        RowParallelLinear(7, 4)
    elif what == "sizes":
        ColumnParallelLinear(4 + rank, 8)
    elif what == "input":
        ColumnParallelLinear(4, 8)(torch.ones(3 + rank, 4))
    elif what == "tokens":
        x = torch.ones(1, 2, 4 + 2 * rank, 8)
        ring_attention(x, x, x)
    elif what == "parameters":
        ShardedOptimizer([torch.ones(2 + rank)], torch.optim.SGD, lr=0.1)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("columns", "out_features is 7, which 2 ranks do not divide"),
        ("rows", "in_features is 7, which 2 ranks do not divide"),
        ("sizes", "rank 0: 4 to 8; rank 1: 5 to 8"),
        ("input", "rank 0: torch.float32 (3, 4); rank 1: torch.float32 (4, 4)"),
        ("tokens", "the shapes of q, k and v differ among ranks"),
        ("parameters", "rank 1: parameter 0 torch.float32 (3,)"),
    ],
)
def test_what_does_not_fit_is_named_on_every_rank(what: str, says: str) -> None:
    for error in on_ranks(2, _odd, what):
        assert isinstance(error, ValueError)
        assert says in str(error)


# --- the sharded optimizer ----------------------------------------------------------


def _sharded(
    average: bool, steps: int, state: Any, optimizer: Any, **how: Any
) -> tuple[list[float], Any]:
    model: nn.Module = small_model()
    if not average:
        model = DistributedDataParallel(model)
    made = ShardedOptimizer(model.parameters(), optimizer, average=average, **how)
    if state is not None:
        model.load_state_dict(state[0])
        made.load_state_dict(state[1])
    losses = []
    for x, y in batches()[-steps:] if state else batches()[:steps]:
        loss = F.mse_loss(model(own(x)), own(y))
        losses.append(mean_loss(loss))
        made.zero_grad()
        loss.backward()
        made.step()
    return losses, (model.state_dict(), made.state_dict())


def _plain(steps: int, optimizer: Any, **how: Any) -> tuple[list[float], Any]:
    model = small_model()
    made = optimizer(model.parameters(), **how)
    losses = []
    for x, y in batches()[:steps]:
        loss = F.mse_loss(model(x), y)
        losses.append(float(loss.detach().double()))
        made.zero_grad()
        loss.backward()
        made.step()
    return losses, (model.state_dict(), made.state_dict())


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("average", [False, True])
def test_a_sharded_optimizer_has_one_process_s_losses(
    ranks: int, average: bool
) -> None:
    alone, _ = _plain(50, torch.optim.AdamW, lr=3e-3)
    for losses, _ in on_ranks(
        ranks, lambda: _sharded(average, 50, None, torch.optim.AdamW, lr=3e-3)
    ):
        assert losses == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (4, 1), (2, 4)])
def test_a_checkpoint_loads_in_another_world_size(before: int, after: int) -> None:
    alone, (_, wanted) = _plain(50, torch.optim.AdamW, lr=3e-3)
    first = on_ranks(
        before, lambda: _sharded(True, 25, None, torch.optim.AdamW, lr=3e-3)
    )
    for losses, (_, state) in on_ranks(
        after, lambda: _sharded(True, 25, first[0][1], torch.optim.AdamW, lr=3e-3)
    ):
        assert losses == pytest.approx(alone[25:], rel=1e-5)
        # What the plain optimizer has, key for key.
        assert state["param_groups"][0]["params"] == list(range(6))
        for number, own_state in wanted["state"].items():
            for key, value in own_state.items():
                assert state["state"][number][key].shape == value.shape
                torch.testing.assert_close(
                    state["state"][number][key], value, rtol=1e-4, atol=1e-7
                )


def test_a_checkpoint_loads_into_the_plain_optimizer_and_back() -> None:
    def run() -> Any:
        return _sharded(True, 25, None, torch.optim.SGD, lr=0.05, momentum=0.9)

    (_, (weights, state)), _ = on_ranks(2, run)
    model = small_model()
    model.load_state_dict(weights)
    plain = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    plain.load_state_dict(state)
    alone, _ = _plain(50, torch.optim.SGD, lr=0.05, momentum=0.9)
    for (x, y), wanted in zip(batches()[25:], alone[25:], strict=True):
        loss = F.mse_loss(model(x), y)
        assert float(loss.detach()) == pytest.approx(wanted, rel=1e-5)
        plain.zero_grad()
        loss.backward()
        plain.step()


def _kept() -> tuple[int, int]:
    model = nn.Linear(40, 25)
    made = ShardedOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1)
    model(torch.ones(2, 40)).sum().backward()
    made.step()
    state = made.inner.state[made.inner.param_groups[0]["params"][0]]
    return state["exp_avg"].numel(), sum(p.numel() for p in model.parameters())


def test_a_rank_keeps_its_part_of_the_state() -> None:
    for kept, parameters in on_ranks(4, _kept):
        assert kept == -(-parameters // 4)


# --- ring attention -----------------------------------------------------------------


def _qkv(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    drawn = torch.Generator().manual_seed(3)
    shapes = ((2, 4, 48, 8), (2, 2, 48, 8), (2, 2, 48, 8), (2, 4, 48, 8))
    return [torch.randn(shape, generator=drawn).to(dtype) for shape in shapes]


def _alone(causal: bool) -> list[torch.Tensor]:
    *qkv, grad = _qkv(torch.float64)
    q, k, v = (t.requires_grad_() for t in qkv)
    more = (t.repeat_interleave(2, dim=1) for t in (k, v))
    out = F.scaled_dot_product_attention(q, *more, is_causal=causal)
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), grad)]


def _ring(causal: bool, zigzag: bool, dtype: torch.dtype) -> Any:
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = [split_tokens(t, rank, world, zigzag=zigzag) for t in _qkv(dtype)]
    *qkv, grad = parts
    q, k, v = (t.requires_grad_() for t in qkv)
    out = ring_attention(q, k, v, causal=causal, zigzag=zigzag)
    found = [out.detach(), *torch.autograd.grad(out, (q, k, v), grad)]
    whole = []
    for part in found:
        every = part.new_empty(world * len(part), *part.shape[1:])
        all_gather(every, part.contiguous()).wait()
        whole.append(join_tokens(list(every.chunk(world)), zigzag=zigzag))
    return values(whole)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(
    ("causal", "zigzag"), [(False, False), (True, False), (True, True)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_ring_attention_is_one_process_s(
    ranks: int, causal: bool, zigzag: bool, dtype: torch.dtype
) -> None:
    wanted = values(_alone(causal))
    error = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 5e-2}[dtype]
    for found in on_ranks(ranks, _ring, causal, zigzag, dtype):
        for got, due in zip(found, wanted, strict=True):
            assert np.abs(got - due).max() < error * np.abs(due).max()


def test_parts_join_to_what_was_split() -> None:
    x = torch.arange(24).view(1, 1, 24, 1)
    for zigzag in (True, False):
        parts = [split_tokens(x, rank, 3, zigzag=zigzag) for rank in range(3)]
        assert torch.equal(join_tokens(parts, zigzag=zigzag), x)
    zigzags = split_tokens(x, 0, 3).flatten().tolist()
    assert zigzags == [0, 1, 2, 3, 20, 21, 22, 23]
    with pytest.raises(ValueError, match="number of tokens is 24, which 10 ranks"):
        split_tokens(x, 0, 5)
