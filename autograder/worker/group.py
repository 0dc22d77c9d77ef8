"""The processes of one group: forks of the worker that meet over gloo.

A rank that failed, or has returned, stays until all are through: what the others see
of it is its silence, as of one that waits, and never a broken connection in the cause's
place. A thread beside each rank watches what it does and tells where it is.
"""

from __future__ import annotations

import _thread
import mmap
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import torch

from autograder.worker.overtime import at_line, learners_frame
from autograder.worker.troubles import Told, Trouble, describe
from autograder.worker.wire import Header, read_message, write_message

# What a rank has to say: a header and raw bytes.
Said = tuple[Header, list[bytes]]

_TICK_S, _TELL_S = 0.1, 1.0
# Ranks none of which has done anything while all were looked at so often wait for
# ever: what is sent over loopback arrives at once.
_LOOKS = 15
_RETURNED, _FAILED, _ASKED = b"r", b"f", b"a"


@dataclass
class _Rank:
    """One rank, as its parent sees it and as it sees itself.

    Args:
        number: its rank.
        file: holds what it has to say, once it has said so.
        says: a pipe with a byte for what it has come to.
        asks: a pipe with a byte that makes it tell where it is.
        board: how often its watch has looked at it, and how many nanoseconds of a
            processor its thread had used: memory that both see.
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

    def heard(self) -> Said:
        """Return what it has to say."""
        fd = os.open(self.file, os.O_RDONLY)
        try:
            words, data = read_message(fd)
        finally:
            os.close(fd)
        del words["blobs"]
        return words, [bytes(piece) for piece in data]

    def say(self, state: bytes, words: Header, data: list[bytes]) -> None:
        """Write what it has to say, and that it has; the first word is the last."""
        if not self.speaking.acquire(blocking=False):
            return
        fd = os.open(self.file, os.O_WRONLY | os.O_CREAT, 0o600)
        write_message(fd, words, data)
        os.close(fd)
        os.write(self.says[1], state)


def run_group(
    run: Callable[[int], Said],
    files: Mapping[str, str],
    *,
    count: int,
    busy_s: float,
    wall_s: float,
) -> list[Said]:
    """Run a function in each rank of a group, and return what each has to say.

    Args:
        run: what a rank does; it is given its number.
        files: the learner's cells, whose lines are told.
        count: how many ranks.
        busy_s: how long each may compute.
        wall_s: how long all of it may take by the clock.

    Raises:
        Told: a rank raised, ended or took too long, or none goes on.
    """
    folder = Path(tempfile.mkdtemp())
    board = memoryview(mmap.mmap(-1, 16 * count)).cast("q")
    ranks: list[_Rank] = []
    try:
        for n in range(count):
            own = board[2 * n : 2 * n + 2]
            rank = _Rank(n, folder / f"{n}", os.pipe(), os.pipe(), own)
            ranks.append(rank)
            rank.pid = os.fork()
            if rank.pid == 0:
                _be(rank, count, run, files)
            # That its end of the pipe is closed tells that it has ended.
            os.close(rank.says[1])
        _await(ranks, busy_s, wall_s)
        return [rank.heard() for rank in ranks]
    finally:
        for rank in ranks:
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
                raise Told(_ended(ranks) or _failed(rank))
        for rank in there:
            if rank.busy_s > busy_s:
                raise Told(_overtime(ranks, rank, busy_s))
        if time.monotonic() > until:
            late = max(there, key=lambda rank: rank.busy_s)
            raise Told(_overtime(ranks, late, wall_s))
        used = [rank.board[1] for rank in there]
        if heard or used != before:
            before, looks = used, [rank.board[0] for rank in there]
        # By each rank's own watch: one that a busy machine keeps waiting is not looked
        # at either.
        elif all(
            rank.board[0] > first + _LOOKS
            for rank, first in zip(there, looks, strict=True)
        ):
            raise Told(_deadlock(ranks))


def _ended(ranks: list[_Rank]) -> Trouble | None:
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
            return Trouble("fault", words)
    return None


# What ends gloo, with no exception that Python could tell.
_LONGER = (
    " Is a tensor received into one that is shorter? Sender and receiver give the same "
    "size and dtype."
)


def _failed(rank: _Rank) -> Trouble:
    trouble = Trouble(**rank.heard()[0])
    return replace(trouble, message=f"on rank {rank.number}: {trouble.message}")


def _deadlock(ranks: list[_Rank]) -> Trouble:
    """Say where each rank waits, on the line of the first that does."""
    said = _whereabouts(ranks)
    first = next((where for where in said.values() if where.line), said[0])
    words = f"no rank goes on: {_listed(said)}"
    return replace(first, message=f"{words}. Who sends what each waits for?")


def _overtime(ranks: list[_Rank], late: _Rank, seconds: float) -> Trouble:
    """Say where the rank is that did not return, and what the others do."""
    said = _whereabouts(ranks)
    own = said.pop(late.number)
    words = f"rank {late.number} did not return within {seconds:g} s: it {own.message}"
    meanwhile = f" Meanwhile {_listed(said)}." if said else ""
    return replace(own, message=f"{words}. Does the loop around it end?{meanwhile}")


def _listed(said: Mapping[int, Trouble]) -> str:
    return ", ".join(f"rank {number} {where.message}" for number, where in said.items())


def _whereabouts(ranks: list[_Rank]) -> dict[int, Trouble]:
    """Ask every rank where it is, and what it does there."""
    for rank in ranks:
        os.write(rank.asks[1], _ASKED)
    until = time.monotonic() + _TELL_S
    found: dict[int, Trouble] = {}
    for rank in ranks:
        left = max(0.0, until - time.monotonic())
        if rank.state == _RETURNED:
            found[rank.number] = Trouble("timeout", "has returned")
        elif select.select([rank.says[0]], [], [], left)[0] and rank.file.exists():
            found[rank.number] = Trouble(**rank.heard()[0])
        else:
            found[rank.number] = Trouble("timeout", "does not answer")
    return found


def _be(
    rank: _Rank, count: int, run: Callable[[int], Said], files: Mapping[str, str]
) -> NoReturn:
    """Be one rank; never returns."""
    # That another has gone is an error to be told, and no end of its own.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    _watch(rank, files)
    try:
        _join(rank, count)
        rank.say(_RETURNED, *run(rank.number))
    except BaseException as error:
        rank.say(_FAILED, describe(error, files).to_json(), [])
    finally:
        sys.stdout.flush()
        while True:
            time.sleep(60)


def _join(rank: _Rank, count: int) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{rank.file.parent / 'meeting'}",
        rank=rank.number,
        world_size=count,
    )


def _watch(rank: _Rank, files: Mapping[str, str]) -> None:
    """Note what the calling thread uses of a processor; tell where it is when asked."""
    thread = _thread.get_ident()
    clock = time.pthread_getcpuclockid(thread)

    def watch() -> None:
        while not select.select([rank.asks[0]], [], [], _TICK_S)[0]:
            rank.board[1] = time.clock_gettime_ns(clock)
            rank.board[0] += 1
        rank.say(_ASKED, _where(thread, files).to_json(), [])

    _thread.start_new_thread(watch, ())


def _where(thread: int, files: Mapping[str, str]) -> Trouble:
    """Say what a rank does at this moment: the group's operation and its peer."""
    frame, within = learners_frame(thread, files)
    if frame is None:
        return Trouble("timeout", "has not come to your cell")
    does = "is"
    for inner in reversed(within):
        if inner.f_code.co_filename.endswith("distributed_c10d.py"):
            does = f"waits in {inner.f_code.co_name}"
            named = map(inner.f_locals.get, ("dst", "src", "group_dst", "group_src"))
            peer = next((rank for rank in named if type(rank) is int), None)
            does += "" if peer is None else f" for rank {peer}"
            break
    trouble = Trouble("timeout", f"{does} on line {frame.f_lineno}")
    return at_line(trouble, frame, files)
