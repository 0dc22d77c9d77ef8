"""The processes of one group: forks of this one that meet over gloo.

A rank that failed, or has returned, stays until all are through: what the others see
of it is its silence, as of one that waits, and never a broken connection in the cause's
place. A thread beside each rank watches what it does and tells where it is.
"""

from __future__ import annotations

import _thread
import json
import mmap
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NoReturn

from kernelwright.ranks.frames import Own, frame_of, own_frame
from kernelwright.ranks.waiting import waits

_TICK_S, _TELL_S = 0.1, 1.0
# Ranks that all wait, and none of which has done anything while all were looked at so
# often, wait for ever: what is sent over loopback arrives at once.
_LOOKS = 15
_RETURNED, _FAILED, _ASKED = b"r", b"f", b"a"
# What a rank keeps of itself where all see it: looks, nanoseconds, whether it waits.
_FIELDS = 3


@dataclass(frozen=True)
class Where:
    """Where a rank is.

    Args:
        does: what it does there, as ``waits in recv for rank 1 on line 5``.
        file: that holds the line; empty where none of the author's is running.
        line: 1-based.
    """

    does: str
    file: str = ""
    line: int = 0


class Stopped(Exception):
    """No result can come any more: a rank ended, takes too long, or all wait.

    Args:
        kind: ``fault``, ``overtime`` or ``deadlock``.
        message: one paragraph that says what each rank does.
        rank: the one that it is about.
        where: its line, where known.
    """

    def __init__(
        self, kind: str, message: str, rank: int, where: Where | None = None
    ) -> None:
        super().__init__(message)
        self.kind, self.rank, self.where = kind, rank, where or Where("")


class Failed(Exception):
    """A rank's function raised; ``told`` is what ``tell`` made of it."""

    def __init__(self, rank: int, told: bytes) -> None:
        super().__init__(f"rank {rank} failed")
        self.rank, self.told = rank, told


@dataclass
class _Rank:
    """One rank, as its parent sees it and as it sees itself.

    Args:
        number: its rank.
        file: holds what it has to say, once it has said so.
        says: a pipe with a byte for what it has come to.
        asks: a pipe with a byte that makes it tell where it is.
        board: how often its watch has looked at it, how many nanoseconds of a
            processor its thread had used, and whether it waits for another rank:
            memory that both see.
        pid: its process.
        state: the last byte that it said.
        speaking: taken by whoever of its two threads has the word.
    """

    number: int
    file: Path
    says: tuple[int, int]
    asks: tuple[int, int]
    board: memoryview[int]
    pid: int = 0
    state: bytes = b""
    speaking: _thread.LockType = field(default_factory=_thread.allocate_lock)

    @property
    def busy_s(self) -> float:
        """The processor's time that it has used."""
        return self.board[1] / 1e9

    def say(self, state: bytes, words: bytes) -> None:
        """Write what it has to say, and that it has; the first word is the last."""
        if not self.speaking.acquire(blocking=False):
            return
        self.file.write_bytes(words)
        os.write(self.says[1], state)


def run_group(
    run: Callable[[int], bytes],
    tell: Callable[[BaseException], bytes],
    own: Own,
    *,
    count: int,
    busy_s: float,
    wall_s: float,
) -> list[bytes]:
    """Run a function in each rank of a group, and return what each has to say.

    Args:
        run: what a rank does; it is given its number.
        tell: puts what a rank's function raised into bytes, in the rank.
        own: says which files hold the author's code, whose lines are told.
        count: how many ranks.
        busy_s: how long each may compute.
        wall_s: how long all of it may take by the clock.

    Raises:
        Failed: a rank's function raised.
        Stopped: a rank ended or took too long, or none goes on.
    """
    board = memoryview(mmap.mmap(-1, 8 * _FIELDS * count)).cast("q")
    ranks: list[_Rank] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            for n in range(count):
                seen = board[_FIELDS * n : _FIELDS * (n + 1)]
                rank = _Rank(n, Path(folder) / f"{n}", os.pipe(), os.pipe(), seen)
                ranks.append(rank)
                rank.pid = os.fork()
                if rank.pid == 0:
                    _be(rank, count, run, tell, own)
                # That its end of the pipe is closed tells that it has ended.
                os.close(rank.says[1])
            _await(ranks, busy_s, wall_s)
            return [rank.file.read_bytes() for rank in ranks]
        finally:
            _end(ranks)


def _end(ranks: list[_Rank]) -> None:
    for rank in ranks:
        if rank.pid > 0:
            with suppress(OSError):
                os.kill(rank.pid, signal.SIGKILL)
                os.waitpid(rank.pid, 0)
        for fd in (rank.says[0], *rank.asks):
            os.close(fd)


def _await(ranks: list[_Rank], busy_s: float, wall_s: float) -> None:
    """Wait until every rank has returned."""
    until = time.monotonic() + wall_s
    before: list[int] = []
    looks: list[int] = []
    while there := [rank for rank in ranks if rank.state != _RETURNED]:
        heard = select.select([rank.says[0] for rank in there], [], [], _TICK_S)[0]
        for rank in (rank for rank in there if rank.says[0] in heard):
            rank.state = os.read(rank.says[0], 1)
            if rank.state != _RETURNED:
                # One that ends breaks the others' connections: those may come first.
                time.sleep(_TICK_S)
                raise _ended(ranks) or Failed(rank.number, rank.file.read_bytes())
        for rank in there:
            if rank.busy_s > busy_s:
                raise _overtime(ranks, rank, busy_s)
        if time.monotonic() > until:
            late = max(there, key=lambda rank: rank.busy_s)
            raise _overtime(ranks, late, wall_s)
        used = [rank.board[1] for rank in there]
        if heard or used != before or not all(rank.board[2] for rank in there):
            before, looks = used, [rank.board[0] for rank in there]
        # By each rank's own watch: one that a busy machine keeps waiting is not looked
        # at either.
        elif all(
            rank.board[0] > first + _LOOKS
            for rank, first in zip(there, looks, strict=True)
        ):
            raise _deadlock(ranks)


def _ended(ranks: list[_Rank]) -> Stopped | None:
    """Say which rank's process ended by itself; ``None`` where all are there."""
    for rank in ranks:
        found = os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is not None:
            how = f"with exit code {found.si_status}"
            if found.si_code != os.CLD_EXITED:
                how = f"by {signal.Signals(found.si_status).name}"
            words = f"rank {rank.number} ended before it returned ({how})."
            if found.si_status == signal.SIGABRT:
                words += _LONGER
            return Stopped("fault", words, rank.number)
    return None


# What ends gloo, with no exception that Python could tell.
_LONGER = (
    " Is a tensor received into one that is shorter? Sender and receiver give the same "
    "size and dtype."
)


def _deadlock(ranks: list[_Rank]) -> Stopped:
    """Say where each rank waits, on the line of the first that does."""
    said = _whereabouts(ranks)
    first = next((n for n, where in said.items() if where.line), 0)
    words = f"no rank goes on: {_listed(said)}. Who sends what each waits for?"
    return Stopped("deadlock", words, first, said[first])


def _overtime(ranks: list[_Rank], late: _Rank, seconds: float) -> Stopped:
    """Say where the rank is that did not return, and what the others do."""
    said = _whereabouts(ranks)
    own = said.pop(late.number)
    words = f"rank {late.number} did not return within {seconds:g} s: it {own.does}"
    words += ". Does the loop around it end?"
    words += f" Meanwhile {_listed(said)}." if said else ""
    return Stopped("overtime", words, late.number, own)


def _listed(said: Mapping[int, Where]) -> str:
    return ", ".join(f"rank {number} {where.does}" for number, where in said.items())


def _whereabouts(ranks: list[_Rank]) -> dict[int, Where]:
    """Ask every rank where it is, and what it does there."""
    for rank in ranks:
        os.write(rank.asks[1], _ASKED)
    until = time.monotonic() + _TELL_S
    found: dict[int, Where] = {}
    for rank in ranks:
        left = max(0.0, until - time.monotonic())
        found[rank.number] = Where("does not answer")
        if rank.state == _RETURNED:
            found[rank.number] = Where("has returned")
        elif (
            select.select([rank.says[0]], [], [], left)[0]
            and os.read(rank.says[0], 1) == _ASKED
        ):
            found[rank.number] = Where(**json.loads(rank.file.read_bytes()))
    return found


def _be(
    rank: _Rank,
    count: int,
    run: Callable[[int], bytes],
    tell: Callable[[BaseException], bytes],
    own: Own,
) -> NoReturn:
    """Be one rank; never returns."""
    # That another has gone is an error to be told, and no end of its own.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # Whoever interrupts the parent has it end the ranks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _watch(rank, own)
    try:
        _join(rank, count)
        rank.say(_RETURNED, run(rank.number))
    except BaseException as error:
        rank.say(_FAILED, tell(error))
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        while True:
            time.sleep(60)
            # Nobody is left to end it.
            if os.getppid() == 1:
                os._exit(0)


def _join(rank: _Rank, count: int) -> None:
    import torch

    # A fork does not take the threads along that a larger pool would wait for.
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{rank.file.parent / 'meeting'}",
        rank=rank.number,
        world_size=count,
    )


def _watch(rank: _Rank, own: Own) -> None:
    """Note what the calling thread uses of a processor; tell where it is when asked."""
    thread = _thread.get_ident()
    clock = time.pthread_getcpuclockid(thread)

    def watch() -> None:
        while not select.select([rank.asks[0]], [], [], _TICK_S)[0]:
            within = own_frame(frame_of(thread), own)[1]
            rank.board[2] = bool(waits(within))
            rank.board[1] = time.clock_gettime_ns(clock)
            rank.board[0] += 1
        rank.say(_ASKED, json.dumps(asdict(_where(thread, own))).encode())

    _thread.start_new_thread(watch, ())


def _where(thread: int, own: Own) -> Where:
    """Say what a rank does at this moment: the group's operation and its peer."""
    frame, within = own_frame(frame_of(thread), own)
    if frame is None:
        return Where("has not come to your cell")
    does = waits(within) or "is"
    line = frame.f_lineno
    return Where(f"{does} on line {line}", frame.f_code.co_filename, line)
