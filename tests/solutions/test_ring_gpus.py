"""The collectives on GPUs: a process a GPU, or two processes on the one there is."""

from __future__ import annotations

import hashlib
import os
import signal
import time

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
    reduce_scatter,
)
from solutions.ring_allreduce.schedules import in_order
from tests.solutions.rank_processes import on_ranks

pytestmark = pytest.mark.gpu
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32,
          torch.int64, torch.uint8, torch.bool)  # fmt: skip


def ranks() -> int:
    return max(2, torch.cuda.device_count())


def drawn(dtype: torch.dtype, n: int, rank: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(n + 31 * rank)
    if dtype.is_floating_point:
        return torch.randn(n, generator=made).to(dtype)
    return torch.randint(0, 2, (n,), generator=made).to(dtype)


def take_a_gpu(rank: int) -> None:
    torch.cuda.set_device(rank % torch.cuda.device_count())


def values(rank: int) -> str:
    take_a_gpu(rank)
    seen, size = hashlib.sha256(), dist.get_world_size()
    for dtype in DTYPES:
        for op in ("SUM", "AVG", "PRODUCT", "MIN", "MAX"):
            if op == "AVG" and not dtype.is_floating_point:
                continue
            for n in (0, 1, 7, 4099, 700_001):
                given = [drawn(dtype, n, r) for r in range(size)]
                wanted = torch.empty_like(given[0])
                in_order(given, op, wanted)
                x = given[rank].cuda()
                all_reduce(x, op=getattr(ReduceOp, op))
                torch.testing.assert_close(x.cpu(), wanted)
                seen.update(x.view(torch.uint8).cpu().numpy().tobytes() if n else b"")
    x = torch.randn(300, 7, dtype=torch.complex64).cuda().t()[1:5]
    all_reduce(y := x.clone())
    seen.update(torch.view_as_real(y).cpu().contiguous().numpy().tobytes())
    return seen.hexdigest()


def test_values_and_the_same_bits_everywhere() -> None:
    assert len(set(on_ranks(ranks(), values, limit_s=250))) == 1


def the_parts(rank: int) -> None:
    take_a_gpu(rank)
    size = dist.get_world_size()
    for n in (0, 1, 7, 1001, 500_000):
        every = [drawn(torch.bfloat16, n * size, r) for r in range(size)]
        out = torch.empty(n, dtype=torch.bfloat16, device="cuda")
        reduce_scatter(out, every[rank].cuda())
        wanted = torch.empty_like(every[0])
        in_order(every, "SUM", wanted)
        assert torch.equal(out.cpu(), wanted[rank * n : (rank + 1) * n])
        whole = torch.empty(n * size, dtype=torch.bfloat16, device="cuda")
        all_gather(whole, out)
        assert torch.equal(whole.cpu(), wanted)
        for root in range(size):
            x = every[rank].cuda()
            broadcast(x, root)
            assert torch.equal(x.cpu(), every[root])


def test_the_parts_of_an_all_reduce() -> None:
    on_ranks(ranks(), the_parts)


def call_after_call(rank: int) -> None:
    take_a_gpu(rank)
    size = dist.get_world_size()
    x = torch.ones(1000, device="cuda")
    large = torch.full((1_000_000,), float(rank), device="cuda")
    other = torch.cuda.Stream()
    for call in range(200):
        if call % 7 == rank:
            time.sleep(0.002)
        x.fill_(call)
        all_reduce(x)
        if call % 20 == 0:
            large.fill_(rank)
            other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                all_reduce(large)
            torch.cuda.current_stream().wait_stream(other)
            assert float(large.min()) == float(large.max()) == sum(range(size))
    assert x.tolist() == [199.0 * size] * 1000


def test_two_hundred_calls_without_a_barrier() -> None:
    on_ranks(ranks(), call_after_call)


def one_differs(rank: int) -> None:
    take_a_gpu(rank)
    x = torch.ones(64, device="cuda")
    all_reduce(x)
    with pytest.raises(RanksDiffer, match=r"rank 1: all_reduce of float32 \(63,\)"):
        all_reduce(x[: 63 if rank == 1 else 64].clone())
        torch.cuda.synchronize()
        all_reduce(x)


def test_what_differs_is_named_on_every_rank() -> None:
    on_ranks(ranks(), one_differs)


def one_is_lost(rank: int) -> float:
    take_a_gpu(rank)
    x = torch.ones(100_000, device="cuda")
    all_reduce(x)
    torch.cuda.synchronize()
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    with pytest.raises(RankLost, match="rank 1 was lost"):
        while True:
            all_reduce(x)
            torch.cuda.synchronize()
    return time.monotonic() - begun


def test_a_killed_rank_is_reported_by_all_others() -> None:
    found = on_ranks(ranks(), one_is_lost)
    assert found.pop(1) is None
    assert all(took < 10 for took in found)
