"""Data parallel: the losses of one process, on any number of ranks."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from solutions.parallel import DistributedDataParallel
from solutions.parallel._collectives import told_by_all
from solutions.parallel.bucket_gradients import bucket_gradients
from solutions.parallel.buckets import make_buckets
from tests.solutions.parallel_cases import on_ranks, values

STEPS, BATCH = 50, 12
RANKS = (1, 2, 3, 4)


def small_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(10, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 7)
    )


def batches(steps: int = STEPS) -> list[tuple[torch.Tensor, torch.Tensor]]:
    drawn = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(BATCH, 10, generator=drawn),
            torch.randn(BATCH, 7, generator=drawn),
        )
        for _ in range(steps)
    ]


def own(x: torch.Tensor) -> torch.Tensor:
    if not dist.is_initialized():
        return x
    return x.chunk(dist.get_world_size())[dist.get_rank()]


def mean_loss(loss: torch.Tensor) -> float:
    loss = loss.detach().double()
    if dist.is_initialized():
        dist.all_reduce(loss)
        loss /= dist.get_world_size()
    return float(loss)


def trained(wrap: Callable[..., nn.Module] | None, **options: Any) -> list[float]:
    # Another seed on each rank: rank 0's parameters are sent to all.
    rank = dist.get_rank() if dist.is_initialized() else 0
    model = small_model(rank)
    model = model if wrap is None else wrap(model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for x, y in batches():
        loss = nn.functional.mse_loss(model(own(x)), own(y))
        losses.append(mean_loss(loss))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


@pytest.fixture(scope="module")
def alone() -> list[float]:
    torch.set_num_threads(1)
    return trained(None)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("limit", [1, 700, 25 * 2**20])
def test_losses_are_those_of_one_process(ranks: int, limit: int, alone: Any) -> None:
    def run() -> list[float]:
        return trained(DistributedDataParallel, bucket_bytes=limit)

    for losses in on_ranks(ranks, run):
        assert losses == pytest.approx(alone, rel=1e-5)
    assert alone[-1] < 0.8 * alone[0]


def _accumulated(set_to_none: bool) -> Any:
    model = DistributedDataParallel(small_model(), bucket_bytes=700)
    plain = small_model()
    x, y = batches(1)[0]
    found = []
    for _ in range(3):
        model.zero_grad(set_to_none)
        plain.zero_grad(set_to_none)
        with model.no_sync():
            for part in range(2):
                loss = model(own(x)[part::3]).sum() * (1 + part)
                loss.backward()
        (model(own(x)[2::3]) - own(y)[2::3]).square().sum().backward()
        for rank in range(dist.get_world_size()):
            mine = x.chunk(dist.get_world_size())[rank]
            its = y.chunk(dist.get_world_size())[rank]
            for part in range(2):
                (plain(mine[part::3]).sum() * (1 + part)).backward()
            (plain(mine[2::3]) - its[2::3]).square().sum().backward()
        ours = [p.grad for p in model.parameters()]
        theirs = [p.grad / dist.get_world_size() for p in plain.parameters()]
        found.append((values(ours), values(theirs)))
    return found


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_are_accumulated_before_they_are_sent(set_to_none: bool) -> None:
    for steps in on_ranks(2, _accumulated, set_to_none):
        for ours, theirs in steps:
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.branch = nn.ModuleList(nn.Linear(4, 2) for _ in range(4))

    def forward(self, x: torch.Tensor, which: int) -> dict[str, torch.Tensor]:
        return {"out": self.branch[which](self.shared(x))}


def _unused() -> Any:
    torch.manual_seed(0)
    model = DistributedDataParallel(
        Branches(), find_unused_parameters=True, bucket_bytes=60
    )
    found = []
    for step in range(3):
        model.zero_grad()
        x = torch.ones(1, 4) * (dist.get_rank() + 1)
        # Each rank takes another branch; nobody ever takes the last.
        which = (dist.get_rank() + step) % 3
        model(x, which)["out"].sum().backward()
        found.append([None if p.grad is None else values(p.grad) for p in
                      model.parameters()])  # fmt: skip
    return found


def test_each_rank_may_leave_other_parameters_unused() -> None:
    first, second = on_ranks(2, _unused)
    for step, (mine, theirs) in enumerate(zip(first, second, strict=True)):
        for a, b in zip(mine, theirs, strict=True):
            assert (a is None) == (b is None)
            assert a is None or np.array_equal(a, b)
        used = {0 + step, (1 + step) % 3}
        biases = [mine[3 + 2 * branch] for branch in range(4)]
        for branch, bias in enumerate(biases):
            if branch in used:
                assert bias.tolist() == [0.5, 0.5]  # one of two ranks gave 1
            else:
                assert bias is None


def _forgotten() -> None:
    model = DistributedDataParallel(Branches())
    model(torch.ones(1, 4), dist.get_rank())["out"].sum().backward()


def test_a_parameter_without_a_gradient_is_named_on_every_rank() -> None:
    for error in on_ranks(2, _forgotten):
        assert isinstance(error, ValueError)
        assert "rank 0: " in str(error) and "rank 1: " in str(error)
        assert "branch.3.weight" in str(error)
        assert "find_unused_parameters=True" in str(error)


def _of_other_shapes() -> None:
    DistributedDataParallel(nn.Linear(3, 2 + dist.get_rank() // 2))


def test_shapes_that_differ_are_named_on_every_rank() -> None:
    for error in on_ranks(3, _of_other_shapes):
        assert isinstance(error, ValueError)
        assert "weight torch.float32 (2, 3)" in str(error)
        assert "rank 2: weight torch.float32 (3, 3)" in str(error)


def _with_buffers() -> Any:
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    for _ in range(2):
        model(torch.randn(5, 3)).square().sum().backward()
    before = values(model.module[1].running_mean)
    x = torch.randn(5, 3)
    model(x)
    after = values(model.module[1].running_mean - 0.1 * model.module[0](x).mean(0))
    plain = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    assert list(model.state_dict()) == list(plain.state_dict())
    plain.load_state_dict(model.state_dict())
    model.load_state_dict(plain.state_dict())
    return before, after


def test_buffers_are_rank_0s_and_state_is_the_plain_modules() -> None:
    (before_0, _), (before_1, after_1) = on_ranks(2, _with_buffers)
    assert not np.array_equal(before_0, before_1)  # each saw a batch of its own
    # Of the next forward a tenth is this rank's batch's, and the rest is rank 0's.
    np.testing.assert_allclose(after_1, 0.9 * before_0, rtol=1e-5, atol=1e-7)


def _mixed(reduce_dtype: torch.dtype | None) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3).bfloat16())
    model.forward = lambda x: model[1](model[0](x).bfloat16())  # type: ignore[method-assign]
    wrapped = DistributedDataParallel(
        model, reduce_dtype=reduce_dtype, bucket_bytes=100
    )
    for _ in range(2):
        wrapped.zero_grad()
        torch.manual_seed(dist.get_rank())
        wrapped(torch.randn(4, 6)).float().square().sum().backward()
    kinds = {str(bucket.buffer.dtype) for bucket in wrapped._buckets}
    return (
        kinds,
        [str(p.grad.dtype) for p in model.parameters()],
        values([p.grad for p in model.parameters()]),
    )


@pytest.mark.parametrize("reduce_dtype", [None, torch.float32, torch.bfloat16])
def test_gradients_of_other_precision_have_buckets_of_their_own(
    reduce_dtype: torch.dtype | None,
) -> None:
    mine, theirs = on_ranks(2, _mixed, reduce_dtype)
    both = {"torch.float32", "torch.bfloat16"}
    assert mine[0] == (both if reduce_dtype is None else {str(reduce_dtype)})
    assert mine[1] == 2 * ["torch.float32"] + 2 * ["torch.bfloat16"]
    for a, b in zip(mine[2], theirs[2], strict=True):
        assert np.array_equal(a, b) and np.abs(a).max() > 0


def _counted() -> Any:
    events: list[tuple[str, str, float, float]] = []
    model = DistributedDataParallel(small_model(), bucket_bytes=700, events=events)
    for _ in range(2):
        time.sleep(0.05)
        events.clear()
        model(batches(1)[0][0]).sum().backward()
    sizes = [bucket.buffer.nbytes for bucket in model._buckets]
    # The library's own thread notes an end, which may be after the wait for it.
    until = time.monotonic() + 5
    while len(events) < 6 + len(sizes) and time.monotonic() < until:
        time.sleep(0.01)
    return events, sizes, sum(4 * p.numel() for p in model.parameters())


def test_buckets_are_sent_while_backward_goes_on() -> None:
    for events, sizes, all_bytes in on_ranks(2, _counted):
        said = Counter(what for what, *_ in events)
        assert said == {"gradient": 6, "all-reduce": len(sizes)}
        assert sum(sizes) == all_bytes + 4  # the number behind counts the missing
        last = max(begin for what, _, begin, _ in events if what == "gradient")
        first = min(begin for what, _, begin, _ in events if what == "all-reduce")
        assert first < last


@pytest.mark.parametrize(
    ("sizes", "limit", "wanted"),
    [
        ([], 5, []),
        ([9], 5, [[0]]),
        ([1, 2, 3, 4], 7, [[3, 2], [1, 0]]),
        ([5, 1, 5, 9, 5], 5, [[4], [3], [2], [1], [0]]),
    ],
)
def test_buckets_fill_from_the_back(
    sizes: list[int], limit: int, wanted: list[list[int]]
) -> None:
    assert bucket_gradients(sizes, limit) == wanted


def test_buckets_follow_the_order_that_they_are_given() -> None:
    parameters = [nn.Parameter(torch.randn(n)) for n in (1, 2, 3, 4)]
    buckets = make_buckets(parameters, [2, 0, 3, 1], 16, None)
    assert [list(bucket.members) for bucket in buckets] == [[2, 0], [3], [1]]
    assert [bucket.buffer.numel() for bucket in buckets] == [4, 4, 3]


def _left_alone(what: str) -> float:
    model = DistributedDataParallel(small_model(), bucket_bytes=700)
    x, _ = batches(1)[0]
    began = time.monotonic()
    try:
        for step in range(3):
            model.zero_grad()
            loss = model(x).sum()
            if step == 1 and dist.get_rank() == 1:
                os._exit(3)
            if what == "backward":
                loss.backward()
            else:
                told_by_all("here")
    except RuntimeError as error:
        assert f"rank {dist.get_rank()} of 3: another rank has ended" in str(error)
        return time.monotonic() - began
    raise AssertionError("nothing was noticed")


@pytest.mark.parametrize("what", ["backward", "agreement"])
def test_a_rank_that_died_is_told_of_on_all_others(what: str) -> None:
    first, dead, last = on_ranks(3, _left_alone, what)
    assert isinstance(dead, EOFError)
    assert first < 10 and last < 10
