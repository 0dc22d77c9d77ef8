"""A process that says what it begins, and is ended where it says nothing for too long.

It prints JSON, one message a line. A message may hold ``limit``: the seconds until the
next one is due. So whatever hangs, a kernel among them, is known by its name.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from autograder.worker import system

Message = dict[str, Any]
Ended = Literal["done", "died", "silent", "late"]

START_S = 60.0
"""For the first message: torch and CUDA take seconds, on a cold disk many."""


def watch(
    command: Sequence[str],
    hear: Callable[[Message], None],
    until: float,
    *,
    start_s: float = START_S,
) -> tuple[Ended, str]:
    """Run a command, hear its messages, and end it and its children in time.

    Args:
        command: prints messages; other lines are kept as what it said.
        hear: called with each message.
        until: monotonic time at which it is ended whatever it does.
        start_s: seconds until the first message.

    Returns:
        How it ended (``silent``: a message was overdue), and the last of what it
        printed beside messages.
    """
    process = subprocess.Popen(
        list(command),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return _listen(process, hear, until, start_s)
    except BaseException:  # this process is ended: what it started must not go on
        _end(process)
        raise


def _listen(
    process: subprocess.Popen[bytes],
    hear: Callable[[Message], None],
    until: float,
    start_s: float,
) -> tuple[Ended, str]:
    """Take messages in until the process ends or is ended."""
    assert process.stdout is not None
    fd = process.stdout.fileno()
    said: list[str] = []
    due, data = time.monotonic() + start_s, b""
    with selectors.DefaultSelector() as ready:
        ready.register(fd, selectors.EVENT_READ)
        while True:
            now = time.monotonic()
            if now >= min(due, until):
                _end(process)
                return "silent" if now < until else "late", "\n".join(said[-30:])
            if not ready.select(min(due, until) - now):
                continue
            more = os.read(fd, 1 << 16)
            if not more:
                break
            *lines, data = (data + more).split(b"\n")
            for line in lines:
                message = _message(line)
                if message is None:
                    said += [line.decode("utf-8", "replace")] if line else []
                    continue
                hear(message)
                if "limit" in message:
                    due = time.monotonic() + float(message["limit"])
    _end(process, grace_s=10)
    return "died" if process.returncode else "done", "\n".join(said[-30:])


def tell(**message: Any) -> None:
    """Say something to whoever watches this process, on a line of its own."""
    print(f"\n{json.dumps(message)}", flush=True)


def be_watched() -> None:
    """End with the process that watches, whatever ends that one."""
    system.die_with_parent(signal.SIGKILL)


def end_in_order() -> None:
    """Unwind where this process is told to end, so that what was heard is stored."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def _message(line: bytes) -> Message | None:
    if not line.startswith(b"{"):
        return None
    with contextlib.suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict):
            return found
    return None


def _end(process: subprocess.Popen[bytes], grace_s: float = 0.0) -> None:
    """Wait for the process, then end it and all that it started."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=grace_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=10)
    if process.stdout is not None:
        process.stdout.close()
