"""The keeper of one worker: starts it, waits for it, ends all that it leaves.

A keeper is a trusted process between the fork server and a worker. It holds one end
of a leash: when the supervisor drops the other end (a deadline passed, the work is
done, the supervisor died) everything that the worker started is killed. How the
worker ended goes to the supervisor through a pipe that the worker does not hold.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autograder.worker import system
from autograder.worker.confine import Confinement, confine, own_namespaces

# How many processes a worker may have at once: a compiler needs a handful.
MOST_PROCESSES = 256
_TICK_S = 0.05
# Where the worker finds its pipes: above anything that an import left open.
_REQUEST, _REPLY = 100, 101


@dataclass(frozen=True)
class Ends:
    """The descriptors of one worker, handed over by the supervisor."""

    request: int
    reply: int
    output: int
    status: int
    leash: int

    def all(self) -> tuple[int, ...]:
        """Return them in the order in which they are handed over."""
        return (self.request, self.reply, self.output, self.status, self.leash)


def keep(
    ends: Ends,
    options: dict[str, Any],
    serve: Callable[[int, int], None],
    namespaces: bool,
) -> None:
    """Run one worker to its end; called in a process forked for it alone."""
    os.setsid()
    system.become_subreaper()
    _first_to_go()
    folder = tempfile.mkdtemp(prefix="kw-")
    asked = namespaces and options.get("private", True)
    private = asked and own_namespaces(options["cuda"])
    how = Confinement.from_header(options, folder, private)
    if how.loopback:
        system.raise_loopback()
    before = _process_count()
    try:
        child = os.fork()
        if child == 0:
            if private:
                _first_process(ends, how, serve)
            else:
                _worker(ends, how, serve)
        for fd in (ends.request, ends.reply, ends.output):
            os.close(fd)
        crowded = _wait(child, ends.leash, before)
        left = _end_all(child)
        ended = left.get(child)
        _report(
            ends.status,
            {
                "status": ended if ended is not None else -signal.SIGKILL,
                "crowded": crowded,
                "private": private,
                "left": len(left) - (child in left),
            },
        )
    finally:
        remove(folder)


def remove(folder: str) -> None:
    """Remove a worker's folder, whatever the worker did to keep it.

    Where it stayed, the next workers would have its space no more: folders that may not
    be entered, or that lie deeper than Python can follow.
    """
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(folder)
        return
    for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        with contextlib.suppress(OSError):
            subprocess.run([*command, folder], stderr=subprocess.DEVNULL)


def _first_process(
    ends: Ends, how: Confinement, serve: Callable[[int, int], None]
) -> None:
    """Be the first process of the namespace: reap orphans, and end with the worker.

    The kernel spares a namespace's first process most signals, so the worker must
    not be it: its crash would not look like one.
    """
    os.close(ends.status)
    try:
        system.mount_own_proc()
        worker = os.fork()
    except OSError:
        os._exit(70)
    if worker == 0:
        _worker(ends, how, serve)
    for fd in (ends.request, ends.reply, ends.output):
        os.close(fd)
    while True:
        pid, status = os.wait()
        if pid == worker:
            code = os.waitstatus_to_exitcode(status)
            # A signal's number is passed on as an exit code above 128.
            os._exit(128 - code if code < 0 else min(code, 127))


def _worker(ends: Ends, how: Confinement, serve: Callable[[int, int], None]) -> None:
    """Become the worker; never returns."""
    code = 70
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(ends.output, 1)
        os.dup2(ends.output, 2)
        # A program that the worker starts must not hold its pipes open.
        os.dup2(ends.request, _REQUEST, inheritable=False)
        os.dup2(ends.reply, _REPLY, inheritable=False)
        os.closerange(3, _REQUEST)
        os.closerange(_REPLY + 1, 4096)
        confine(how)
        serve(_REQUEST, _REPLY)
        code = 0
    except BaseException as error:  # nothing may unwind into the server's frames
        with contextlib.suppress(BaseException):
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def _wait(child: int, leash: int, before: int) -> bool:
    """Wait until the child ends or the leash is dropped; say if it grew too many."""
    watch = select.poll()
    watch.register(leash, select.POLLIN | select.POLLHUP)
    try:
        pidfd = os.pidfd_open(child)
        watch.register(pidfd, select.POLLIN)
    except (OSError, AttributeError):
        pidfd = -1
    while True:
        events = dict(watch.poll(_TICK_S * 1000))
        if leash in events:
            return False
        if pidfd in events or os.waitid(
            os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT
        ):
            return False
        if _process_count() > before + MOST_PROCESSES and (
            len(_descendants(os.getpid())) > MOST_PROCESSES
        ):
            return True


def _end_all(child: int) -> dict[int, int]:
    """Kill every descendant and reap it; return how each child ended.

    The first process of a namespace takes all others of it along. Without a
    namespace orphans come to this process, so that going round until no child is
    left finds them all.
    """
    ended: dict[int, int] = {}
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for pid in {child, *_descendants(os.getpid())} - ended.keys():
            with contextlib.suppress(OSError):
                # One that has ended by itself keeps its own status.
                os.kill(pid, signal.SIGKILL)
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return ended
        code = os.waitstatus_to_exitcode(status)
        ended[pid] = 128 - code if code < 0 else code
    return ended


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                # The name in brackets may hold anything, brackets too.
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    queue = [root]
    while queue:
        for pid in children.get(queue.pop(), ()):
            found.append(pid)
            queue.append(pid)
    return found


def _process_count() -> int:
    return sum(name.isdigit() for name in os.listdir("/proc"))


def _first_to_go() -> None:
    """Offer this process and its children first when the machine's memory ends."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _report(fd: int, record: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.write(fd, json.dumps(record).encode() + b"\n")
