"""``kw.ranks``: results in order, what was sent, and who waits for whom."""

from __future__ import annotations

import inspect
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import kernelwright as kw
from kernelwright.errors import ArgumentError, RankDeadlock, RankError


def _neighbours() -> tuple[int, int]:
    me, n = dist.get_rank(), dist.get_world_size()
    return (me + 1) % n, (me - 1) % n


def _pass_on(x: torch.Tensor) -> torch.Tensor:
    right, left = _neighbours()
    got = torch.empty_like(x)
    sending = dist.isend(x + dist.get_rank(), right)
    dist.recv(got, left)
    sending.wait()
    print(f"{got.tolist()} came\nfrom {left}")
    return got


def _line(function: Callable[..., Any], part: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return next(first + i for i, line in enumerate(lines) if part in line)


def test_results_and_prints_come_in_the_order_of_ranks(
    capfd: pytest.CaptureFixture[str],
) -> None:
    results = kw.ranks(3, _pass_on, torch.zeros(2))
    assert [each.tolist() for each in results] == [[2.0] * 2, [0.0] * 2, [1.0] * 2]
    shown = capfd.readouterr().out.splitlines()
    assert [line for line in shown if "from" in line] == [
        "rank 0: from 2",
        "rank 1: from 0",
        "rank 2: from 1",
    ]
    assert not dist.is_initialized()


def test_what_is_sent_is_recorded() -> None:
    def halves(x: torch.Tensor) -> None:
        right, left = _neighbours()
        for part in x.chunk(2):
            got = torch.empty_like(part)
            both = [dist.isend(part, right), dist.irecv(got, left)]
            for one in both:
                one.wait()
        dist.barrier()

    results = kw.ranks(2, halves, torch.arange(6.0))
    assert results.bytes_sent == [24, 24] and results.findings == []
    first, second = results.sent[0]
    assert (first.peer, first.bytes, first.offset) == (1, 12, 0)
    assert (second.offset, second.buffer) == (12, first.buffer)
    assert first.line == second.line == _line(halves, "dist.isend")
    assert first.began <= first.ended <= second.began
    assert len(results.received[1]) == 2 and "barrier" in results.collectives[0]


def test_memory_that_a_message_needs_is_watched() -> None:
    def careless(x: torch.Tensor) -> None:
        right, left = _neighbours()
        got = torch.empty_like(x)
        sending = dist.isend(x, right)
        x[1:].mul_(2)
        receiving = dist.irecv(got, left)
        _ = got + 1
        receiving.wait()
        sending.wait()
        x.add_(got)

    findings = kw.ranks(2, careless, torch.ones(4)).findings
    for rank in range(2):
        written, read = (f for f in findings if f.startswith(f"rank {rank}: "))
        assert f"line {_line(careless, 'mul_')} writes memory of the message" in written
        assert f"line {_line(careless, 'got + 1')} reads memory" in read


def test_a_message_into_memory_that_another_needs_is_told() -> None:
    def overwrites(x: torch.Tensor) -> torch.Tensor:
        right, left = _neighbours()
        sending = dist.isend(x, right)
        dist.recv(x, left)
        sending.wait()
        return x

    found, _ = kw.ranks(2, overwrites, torch.ones(4)).findings
    assert f"line {_line(overwrites, 'dist.recv')} writes memory of the mess" in found
    assert f"line {_line(overwrites, 'isend')} sends to rank 1" in found


def test_a_message_that_nobody_waits_for_is_told() -> None:
    def forgetful(x: torch.Tensor) -> None:
        right, left = _neighbours()
        dist.isend(x, right)
        dist.recv(torch.empty_like(x), left)

    (found,) = kw.ranks(2, forgetful, torch.ones(4)).findings[:1]
    assert "nobody waits for the message that line" in found
    assert f"line {_line(forgetful, 'isend')} sends to rank 1" in found


def _receive_first(x: torch.Tensor) -> None:
    right, left = _neighbours()
    dist.recv(x, left)
    dist.send(x, right)


def _wait_first(x: torch.Tensor) -> None:
    right, left = _neighbours()
    dist.irecv(x, left).wait()
    dist.send(x, right)


def test_a_deadlock_ends_and_says_who_waits_for_whom() -> None:
    began = time.monotonic()
    with pytest.raises(RankDeadlock) as blocked:
        kw.ranks(3, _receive_first, torch.ones(4))
    line = _line(_receive_first, "recv")
    for rank, left in ((0, 2), (1, 0), (2, 1)):
        words = f"rank {rank} waits in recv for rank {left} on line {line}"
        assert words in str(blocked.value)
    assert "dist.recv(x, left)" in str(blocked.value) and blocked.value.line == line
    with pytest.raises(RankDeadlock, match=r"received on line \d+ from rank 1 on line"):
        kw.ranks(2, _wait_first, torch.ones(4))
    assert time.monotonic() - began < 30


def test_ranks_that_sleep_are_no_deadlock() -> None:
    def late() -> int:
        if dist.get_rank() == 0:
            time.sleep(2.5)
        dist.barrier()
        return dist.get_rank()

    assert kw.ranks(2, late) == [0, 1]


def test_a_rank_that_raises_is_named_with_its_line() -> None:
    def fails() -> None:
        if dist.get_rank() == 1:
            raise ValueError("too small")
        dist.barrier()

    with pytest.raises(RankError, match="on rank 1: ValueError: too small") as error:
        kw.ranks(3, fails)
    assert (error.value.rank, error.value.line) == (1, _line(fails, "raise"))


def test_a_rank_that_ends_is_told_at_once() -> None:
    def dies() -> None:
        if dist.get_rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()

    began = time.monotonic()
    with pytest.raises(RankError, match="rank 2 ended before it returned .*SIGKILL"):
        kw.ranks(3, dies)
    assert time.monotonic() - began < 10


def test_time_has_an_end() -> None:
    def endless() -> None:
        while dist.get_rank() == 0:
            time.sleep(0.01)

    with pytest.raises(RankDeadlock, match=r"rank 0 did not return within 1 s"):
        kw.ranks(2, endless, timeout_s=1)


def test_what_cannot_be_is_refused() -> None:
    for n in (0, 65, True, 2.0):
        with pytest.raises(ArgumentError, match="wanted how many ranks"):
            kw.ranks(n, print)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="is no function"):
        kw.ranks(2, torch.ones(1))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="wanted seconds"):
        kw.ranks(2, print, timeout_s=0)
    with pytest.raises(RankError, match="cannot be brought back"):
        kw.ranks(1, lambda: lambda: 0)
