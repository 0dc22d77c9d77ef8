"""All-reduce over processes: values, bits, who differs and who is lost."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from solutions.ring_allreduce import (
    RankLost,
    RanksDiffer,
    ReduceOp,
    all_gather,
    all_reduce,
    broadcast,
    mesh,
    reduce_scatter,
    schedules,
)
from tests.solutions.rank_processes import on_ranks

OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8,
    torch.uint8, torch.int32, torch.int64, torch.bool, torch.complex64,
    torch.complex128,
)  # fmt: skip
SIZES = (0, 1, 7, 1000, 4099)


def takes(dtype: torch.dtype, op: str) -> bool:
    if dtype.is_complex:
        return op in ("SUM", "AVG")
    return op != "AVG" or dtype.is_floating_point


def drawn(dtype: torch.dtype, shape: Any, seed: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(seed)
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype, generator=made)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=made).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 9, shape, generator=made).to(
        dtype
    )


def ring_always() -> None:
    """Let chunks be so small that each size goes round in many."""
    schedules.SMALL, schedules.CHUNK = -1, 256


def tolerance(dtype: torch.dtype, ranks: int) -> dict[str, float]:
    if not (dtype.is_floating_point or dtype.is_complex):
        return {"rtol": 0, "atol": 0}
    eps = torch.finfo(dtype).eps
    return {"rtol": 2 * ranks * eps, "atol": 4 * ranks * eps}


def values_of_all(rank: int, ring: bool) -> str:
    if ring:
        ring_always()
    seen = hashlib.sha256()
    ranks = dist.get_world_size()
    for dtype in DTYPES:
        for op in OPS:
            if not takes(dtype, op):
                continue
            for n in SIZES:
                x = drawn(dtype, (n,), 31 * rank + n)
                wanted = x.clone()
                dist.all_reduce(wanted, getattr(ReduceOp, op))
                assert all_reduce(x, op=getattr(ReduceOp, op)) is None
                torch.testing.assert_close(
                    x, wanted, msg=lambda m, d=dtype, o=op, n=n: f"{d} {o} {n}: {m}",
                    **tolerance(dtype, ranks),
                )  # fmt: skip
                raw = x.view(torch.uint8) if n else x
                seen.update(bytes(raw.tolist()) if n else b"")
    return seen.hexdigest()


@pytest.mark.parametrize("ring", [False, True], ids=["one_shot", "ring"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
def test_values_are_torch_s_and_bits_the_same_everywhere(
    ranks: int, ring: bool
) -> None:
    assert len(set(on_ranks(ranks, values_of_all, ring))) == 1


def the_parts(rank: int, ring: bool) -> None:
    if ring:
        ring_always()
    ranks = dist.get_world_size()
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.complex64):
        for n in (0, 1, 7, 1000):
            x = drawn(dtype, (ranks, n), rank)
            kept, out = x.clone(), torch.empty(n, dtype=dtype)
            reduce_scatter(out, x)
            every = x.clone()
            all_reduce(every)
            torch.testing.assert_close(out, every[rank], **tolerance(dtype, ranks))
            assert torch.equal(x, kept)
            mine = drawn(dtype, (n,), 100 + rank)
            got = torch.empty(ranks, n, dtype=dtype)
            all_gather(got, mine)
            for r in range(ranks):
                assert torch.equal(got[r], drawn(dtype, (n,), 100 + r))
            for root in range(ranks):
                y = drawn(dtype, (n, 3), 50 + rank)
                broadcast(y, root)
                assert torch.equal(y, drawn(dtype, (n, 3), 50 + root))


@pytest.mark.parametrize("ring", [False, True], ids=["one_shot", "ring"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_the_parts_of_an_all_reduce(ranks: int, ring: bool) -> None:
    on_ranks(ranks, the_parts, ring)


def large_and_odd(rank: int) -> None:
    ranks = dist.get_world_size()
    n = 1_000_003
    x = torch.full((n,), float(rank + 1)) + torch.arange(n) % 13
    all_reduce(x)
    wanted = ranks * (ranks + 1) / 2 + ranks * (torch.arange(n) % 13)
    assert torch.equal(x, wanted.float())
    # What is not contiguous stays what it is, in place.
    base = torch.zeros(8, 6)
    base.t()[1:3] += rank
    all_reduce(base.t()[1:3])
    assert base.sum() == 16 * sum(range(ranks)) and base[:, 0].sum() == 0
    weight = torch.nn.Parameter(torch.ones(3))
    all_reduce(weight)
    assert weight.tolist() == [ranks] * 3
    # In the order of calls, whatever is waited for first.
    several = [torch.full((70_000,), float(rank)) for _ in range(4)]
    handles = [all_reduce(one, async_op=True) for one in several]
    all_reduce(x := torch.ones(2))
    for handle in reversed(handles):
        assert handle is not None
        handle.wait()
        assert handle.is_completed()
    assert all(float(one[-1]) == sum(range(ranks)) for one in several)
    assert x.tolist() == [ranks, ranks]


def test_large_tensors_views_and_handles() -> None:
    on_ranks(3, large_and_odd)


def of_some(rank: int) -> None:
    groups = [dist.new_group(members) for members in ((0, 2), (1, 3))]
    members = (0, 2) if rank % 2 == 0 else (1, 3)
    x = torch.full((5,), float(rank))
    all_reduce(x, groups[rank % 2])
    assert x.tolist() == [float(sum(members))] * 5
    broadcast(x := torch.tensor([rank]), members[1], groups[rank % 2])
    assert x.item() == members[1]
    with pytest.raises(ValueError, match="is not in the group"):
        all_reduce(x, groups[1 - rank % 2])


def test_groups_of_some_ranks() -> None:
    on_ranks(4, of_some)


def what_differs(rank: int) -> None:
    for mine, words in (
        (torch.ones(3 + (rank == 1)), r"rank 1: all_reduce of float32 \(4,\)"),
        (torch.ones(2, 3 + 90_000 * (rank == 2)), r"rank 2: .*\(2, 90003\)"),
        (torch.ones(3).to(torch.int32 if rank == 0 else torch.float32), "rank 0: .*in"),
    ):
        with pytest.raises(RanksDiffer, match=words):
            all_reduce(mine)
    op = ReduceOp.MAX if rank == 2 else ReduceOp.SUM
    with pytest.raises(RanksDiffer, match="rank 2: all_reduce of .*, MAX"):
        all_reduce(torch.ones(1), op=op)
    with pytest.raises(RanksDiffer, match="rank 1: broadcast"):
        if rank == 1:
            broadcast(torch.ones(1), 1)
        else:
            all_reduce(torch.ones(1))
    # What one rank refuses, the others hear.
    for bad, words in (
        (torch.ones(2).to(torch.int16), "int16; wanted one of float32"),
        ([1.0], "list; pass a torch.Tensor"),
    ):
        if rank == 0:
            with pytest.raises(TypeError, match=words):
                all_reduce(bad)
        else:
            with pytest.raises(RanksDiffer, match="rank 0: .* refuses its own"):
                all_reduce(torch.ones(2))
    with pytest.raises(TypeError, match="AVG of torch.int64"):
        all_reduce(torch.ones(2).long(), op=ReduceOp.AVG)
    with pytest.raises(TypeError, match="for 3 ranks tensor wants 12"):
        reduce_scatter(torch.ones(4), torch.ones(11))
    # And the group goes on.
    all_reduce(x := torch.ones(4))
    assert x.tolist() == [3.0] * 4


def test_what_differs_is_named_on_every_rank() -> None:
    on_ranks(3, what_differs)


def late_ranks(rank: int, runs: int) -> str:
    """Call with delays of this rank's own; return what all the results were."""
    delay, size = random.Random(rank), random.Random(5)
    schedules.CHUNK = 4096
    seen = hashlib.sha256()
    for run in range(runs):
        schedules.SMALL = size.choice((-1, 2**18))
        x = drawn(torch.float32, (size.choice((1, 77, 20_011)),), 1000 * run + rank)
        time.sleep(delay.choice((0.0, 0.0, 0.001, 0.01)))
        all_reduce(x)
        seen.update(x.numpy().tobytes())
    return seen.hexdigest()


@pytest.mark.slow
def test_two_hundred_runs_with_random_delays() -> None:
    assert len(set(on_ranks(4, late_ranks, 200))) == 1


def one_is_lost(rank: int, victim: int, nbytes: int) -> tuple[float, tuple[int, ...]]:
    x = torch.ones(nbytes // 4)
    all_reduce(x)
    dist.barrier()
    if rank == victim:
        # Amid a call where it is large: after its header.
        time.sleep(0.3)
        if nbytes > 2**20:
            import threading

            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
            while True:
                all_reduce(x)
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    with pytest.raises(RankLost, match=rf"rank {victim} was lost") as told:
        while True:
            all_reduce(x)
    took = time.monotonic() - begun
    with pytest.raises(RankLost):  # and it stays so
        all_reduce(x)
    return took, told.value.ranks


@pytest.mark.parametrize("nbytes", [64, 32 * 2**20])
@pytest.mark.parametrize("victim", [0, 3])
def test_a_killed_rank_is_reported_by_all_others(victim: int, nbytes: int) -> None:
    found = on_ranks(5, one_is_lost, victim, nbytes)
    assert found.pop(victim) is None
    for took, ranks in found:
        assert took < 10 and ranks[0] == victim


def one_never_comes(rank: int) -> None:
    mesh.MEETING_S = 2
    if rank != 1:
        with pytest.raises(RankLost, match="rank 1 did not come"):
            all_reduce(torch.ones(1))


def test_a_rank_that_never_comes() -> None:
    on_ranks(3, one_never_comes)


def test_without_a_group() -> None:
    with pytest.raises(RuntimeError, match="init_process_group"):
        all_reduce(torch.ones(1))
