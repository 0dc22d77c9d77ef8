"""The trusted process's start and end, and how a learner's processes are held still."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autograder.judge.speed.channel import Channel
from autograder.worker.joining import same_numbers

_ROOT = Path(__file__).resolve().parents[3]
_PROC = Path("/proc")


class TrustedProcess:
    """The process that owns the memory; ``channel`` talks to it.

    Args:
        beside: a process whose process numbers it must share to share memory.
    """

    def __init__(self, beside: int | None = None) -> None:
        request_out, request_in = os.pipe()
        reply_out, reply_in = os.pipe()
        program = (
            f"import sys; sys.path.insert(0, {str(_ROOT)!r}); "
            "from autograder.worker.joining import join; "
            "len(sys.argv) > 3 and join(int(sys.argv[3])); "
            "from autograder.judge.speed.gpu_process import main; "
            "main(int(sys.argv[1]), int(sys.argv[2]))"
        )
        argv = [sys.executable, "-c", program, str(request_out), str(reply_in)]
        if beside is not None:
            argv.append(str(beside))
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("TRITON_INTERPRET", "KERNELWRIGHT_BACKEND")
        }
        self._log = tempfile.TemporaryFile(prefix="kw-speed-")  # noqa: SIM115
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(request_out, reply_in),
            env=environment,
            start_new_session=True,
        )
        os.close(request_out)
        os.close(reply_in)
        self.channel = Channel(request_in, reply_out)

    def said(self) -> str:
        """Return the end of what it printed, for a report of what went wrong."""
        size = os.fstat(self._log.fileno()).st_size
        data = os.pread(self._log.fileno(), 2000, max(0, size - 2000))
        return data.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """End it."""
        self.channel.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()


def other_numbers(root: int) -> int | None:
    """Find a descendant that counts processes differently from this process."""
    return next((pid for pid in descendants(root) if not same_numbers(pid)), None)


@contextmanager
def held_still(root: int, proc: Path = _PROC) -> Iterator[None]:
    """Stop every descendant of a process, and let them go on afterwards.

    While inputs are drawn and while the peer runs, nothing of the learner's may:
    neither to look at the inputs before the clock starts, nor to keep the CPU busy.
    """
    stopped: set[int] = set()
    try:
        # A process may fork while the others are being stopped: until none is new.
        while fresh := [p for p in descendants(root, proc) if p not in stopped]:
            for pid in fresh:
                stopped.add(pid)
                _send(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in stopped:
            _send(pid, signal.SIGCONT)


def descendants(root: int, proc: Path = _PROC) -> list[int]:
    """List the children of a process, their children, and so on."""
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name in brackets may hold anything, brackets too.
            tail = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(tail[1]), []).append(int(entry.name))
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
