"""Connections from each rank of a group to every other, and bytes that travel on them.

A process that ends closes its connections, whoever ends it, and all others are told by
their own systems at once. So a rank that is late is waited for, and one that is lost is
named. A machine that vanishes without a word is missed after ``SILENCE_S``.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed as dist

MEETING_S = 300
"""How long the first call of a group waits for the ranks that have not come."""
SILENCE_S = 8
"""After how long a machine that no longer answers is lost."""
STALLED_S = 2.0
"""How long a rank that needs nothing from a lost one waits for those that do."""

_HELLO = struct.Struct("<16si")


class RankLost(RuntimeError):
    """A rank has ended, or its machine is gone, while others counted on it.

    Args:
        message: what is said of it.
        ranks: which, as the default group numbers them; the first is the cause.
    """

    def __init__(self, message: str, ranks: tuple[int, ...]) -> None:
        super().__init__(message)
        self.ranks = ranks


class Mesh:
    """A group's connections, rank to rank.

    Args:
        group: of torch.distributed; this rank is in it.

    Raises:
        RankLost: a rank did not come to the meeting within ``MEETING_S``.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.rank, self.size = group.rank(), group.size()
        self.names = [dist.get_global_rank(group, r) for r in range(self.size)]
        self.ended: list[int] = []
        self.lock = threading.Lock()
        self.calls = 0
        self.sockets: dict[int, socket.socket] = {}
        if self.size > 1:
            store = dist.distributed_c10d._get_process_group_store(group)
            self._meet(store)

    def _meet(self, store: Any) -> None:
        """Publish where this rank listens, and connect each pair of ranks once."""
        hosts = [one.decode() for one in self._said(store, "host", _host())]
        alone = len(set(hosts)) == 1
        own = "127.0.0.1" if alone else _address()
        token = secrets.token_bytes(16)
        with socket.create_server(("127.0.0.1" if alone else "", 0)) as server:
            server.listen(self.size)
            server.settimeout(MEETING_S)
            place = f"{own} {server.getsockname()[1]} {token.hex()}"
            places = self._said(store, "place", place)
            # Each connects to those before it, and is called by those behind it.
            for peer in range(self.rank):
                host, port, theirs = places[peer].decode().split()
                made = socket.create_connection((host, int(port)), MEETING_S)
                made.sendall(_HELLO.pack(bytes.fromhex(theirs), self.rank))
                self.sockets[peer] = made
            while len(self.sockets) < self.size - 1:
                made, _ = server.accept()
                made.settimeout(MEETING_S)
                given, peer = _HELLO.unpack(_exactly(made, _HELLO.size))
                if secrets.compare_digest(given, token):
                    self.sockets[peer] = made
                else:  # some other program
                    made.close()
        for made in self.sockets.values():
            made.setblocking(False)
            for level, option, value in (
                (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
                (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2),
                (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
                (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENCE_S // 2 - 1),
                (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_S * 1000),
            ):
                made.setsockopt(level, option, value)

    def _said(self, store: Any, what: str, own: str) -> list[bytes]:
        """Say something, and return what each rank says."""
        store.set(f"ring_allreduce/{what}/{self.rank}", own)
        said, due = [], time.monotonic() + MEETING_S
        for peer in range(self.size):
            key = f"ring_allreduce/{what}/{peer}"
            left = timedelta(seconds=max(0.1, due - time.monotonic()))
            try:
                store.wait([key], left)
            except RuntimeError as error:
                name = self.names[peer]
                raise RankLost(
                    f"rank {name} did not come to the group's first call within "
                    f"{MEETING_S} s, or the store is gone ({error}). Look at what "
                    f"rank {name} printed.",
                    (name,),
                ) from error
            said.append(store.get(key))
        return said

    def lose(self, what: str) -> RankLost:
        """Return the error that names who has ended."""
        names = tuple(self.names[peer] for peer in self.ended)
        first, *more = map(str, names)
        also = f", and after it {', '.join(more)}" if more else ""
        return RankLost(
            f"{what}: rank {first} was lost{also} (its process has ended, or its "
            f"machine no longer answers), so rank {self.names[self.rank]} cannot "
            "finish. Look at what that rank printed; the group must be made anew.",
            names,
        )


class Exchange:
    """What one rank sends and receives in one call, all of it at once.

    Args:
        mesh: the connections.
        what: the call's name, for errors.
    """

    def __init__(self, mesh: Mesh, what: str) -> None:
        self._mesh, self._what = mesh, what
        self._out: dict[int, deque[memoryview]] = {p: deque() for p in mesh.sockets}
        self._into: dict[int, deque[tuple[memoryview, Callable[[], object] | None]]]
        self._into = {p: deque() for p in mesh.sockets}

    def send(self, peer: int, data: memoryview) -> None:
        """Queue bytes to a peer, which must not change until ``run`` is done."""
        if len(data):
            self._out[peer].append(data)

    def receive(
        self, peer: int, into: memoryview, then: Callable[[], object] | None = None
    ) -> None:
        """Queue room for a peer's next bytes, and what is done when they are there.

        ``then`` may queue more, in both directions.
        """
        self._into[peer].append((into, then))

    def run(self, limit_s: float | None = None) -> None:
        """Send and receive until nothing is queued.

        Args:
            limit_s: after how long ranks that are only late are given up.

        Raises:
            RankLost: a rank that this one counts on, or that others do, has ended.
        """
        begun = time.monotonic()
        mesh, poll = self._mesh, select.poll()
        by_number = {made.fileno(): peer for peer, made in mesh.sockets.items()}
        if mesh.ended:
            raise mesh.lose(self._what)
        for peer in mesh.sockets:
            self._settle(peer)
        watched: dict[int, int] = {}
        moved = time.monotonic()
        while any(self._out.values()) or any(self._into.values()):
            for peer, made in mesh.sockets.items():
                mask = select.POLLIN if self._into[peer] else 0
                mask |= select.POLLOUT if self._out[peer] else 0
                if peer not in mesh.ended:
                    mask |= select.POLLRDHUP
                if watched.get(peer) != mask:
                    watched[peer] = mask
                    if mask:
                        poll.register(made, mask)
                    else:
                        poll.unregister(made)
            for number, event in poll.poll(500):
                peer = by_number[number]
                if event & ~(select.POLLIN | select.POLLOUT) and (
                    peer not in mesh.ended
                ):
                    mesh.ended.append(peer)
                if self._move(peer, event):
                    moved = time.monotonic()
            if limit_s is not None and time.monotonic() - begun > limit_s:
                mesh.ended += [p for p in mesh.sockets if self._into[p]]
                raise mesh.lose(self._what)
            if mesh.ended and time.monotonic() - moved > STALLED_S:
                raise mesh.lose(self._what)
        # Whoever has ended by now has done its part of this call.
        if mesh.ended:
            mesh.ended.clear()

    def _move(self, peer: int, event: int) -> bool:
        """Send and receive what a connection takes now; say whether it took any."""
        mesh, moved = self._mesh, False
        made = mesh.sockets[peer]
        gone = event & (select.POLLERR | select.POLLHUP)
        try:
            if self._into[peer] and (event & select.POLLIN or gone):
                into, then = self._into[peer][0]
                count = made.recv_into(into)
                if not count:
                    raise ConnectionResetError
                moved = True
                if count < len(into):
                    self._into[peer][0] = (into[count:], then)
                else:
                    self._into[peer].popleft()
                    if then:
                        then()
                    self._settle(peer)
            if self._out[peer] and (event & select.POLLOUT or gone):
                data = self._out[peer][0]
                count = made.send(data)
                moved = True
                if count < len(data):
                    self._out[peer][0] = data[count:]
                else:
                    self._out[peer].popleft()
        except (BlockingIOError, InterruptedError):
            return moved
        except OSError:
            if peer not in mesh.ended:
                mesh.ended.append(peer)
            raise mesh.lose(self._what) from None
        return moved

    def _settle(self, peer: int) -> None:
        """Finish what waits for no bytes."""
        while self._into[peer] and not len(self._into[peer][0][0]):
            _, then = self._into[peer].popleft()
            if then:
                then()


_meshes: WeakKeyDictionary[dist.ProcessGroup, Mesh] = WeakKeyDictionary()
_making = threading.Lock()


def mesh_of(group: dist.ProcessGroup) -> Mesh:
    """Return a group's connections; the first call of all its ranks makes them."""
    with _making:
        found = _meshes.get(group)
        if found is None:
            found = _meshes[group] = Mesh(group)
    return found


def _host() -> str:
    """Name this machine: the same for all who reach each other by 127.0.0.1."""
    facts = [socket.gethostname()]
    with suppress(OSError):
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):  # containers of one machine have networks of their own
        facts.append(os.readlink("/proc/self/ns/net"))
    return " ".join(facts)


def _address() -> str:
    """Return the address by which the group's other machines reach this one."""
    towards = os.environ.get("MASTER_ADDR", "192.0.2.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((towards, 9))  # sends nothing: it only looks up the way
        return str(probe.getsockname()[0])


def _exactly(made: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        more = made.recv(count - len(got))
        if not more:
            break
        got += more
    return got.ljust(count, b"\0")
