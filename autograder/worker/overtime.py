"""Code that does not end, said on the learner's own line.

A thread beside the one that runs the answer looks at its clock and, past its time, at
where it is: it answers for it and ends the process. Nothing that the answer catches
keeps it from that; the supervisor's own deadline stands behind it.
"""

from __future__ import annotations

import _thread
import linecache
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import clock_gettime, monotonic, process_time, pthread_getcpuclockid
from types import FrameType

from autograder.worker.one_thread import start_thread
from autograder.worker.troubles import Trouble
from kernelwright.ranks.frames import frame_of, own_frame

_TICK_S = 0.1
# A process may use so much of a tick and count as asleep: this thread is in it, too.
_ASLEEP = 0.05


@contextmanager
def ended_after(
    busy_s: float,
    wall_s: float,
    files: Mapping[str, str],
    answer: Callable[[Trouble], None],
) -> Iterator[None]:
    """End this process where what runs in this thread computes for too long.

    Args:
        busy_s: of this thread's own time on a processor, so that a busy machine does
            not end what is only slow; or of time asleep. 0 for no limit.
        wall_s: by the clock, whatever the machine does.
        files: the learner's cells, whose lines are told.
        answer: sends the trouble instead of the answer that did not come.
    """
    if not busy_s:
        yield
        return
    done, speaking = _thread.allocate_lock(), _thread.allocate_lock()
    done.acquire()
    thread, native = _thread.get_ident(), _thread.get_native_id()

    def watch() -> None:
        busy, used, slept = _own_clock(thread), process_time(), 0.0
        busy_until, wall_until = busy() + busy_s, monotonic() + wall_s
        while not done.acquire(timeout=_TICK_S):
            # Ticks and not the clock: a machine that has others to serve has them
            # wait as well.
            before, used = used, process_time()
            if used - before < _ASLEEP * _TICK_S and _sleeps(native):
                slept += _TICK_S
            asleep = slept > busy_s
            late = monotonic() > wall_until
            if busy() < busy_until and not asleep and not late:
                continue
            seconds = wall_s if late else busy_s
            with speaking, suppress(OSError):
                if not done.acquire(blocking=False):
                    answer(_where_it_is(thread, files, seconds, asleep))
                    os._exit(0)
            return

    start_thread(watch, ())
    try:
        yield
    finally:
        # Whoever speaks first answers: never both.
        with speaking:
            done.release()


def _own_clock(thread: int) -> Callable[[], float]:
    """Return a thread's clock, which stands still while others have the processor."""
    number = pthread_getcpuclockid(thread)
    return lambda: clock_gettime(number)


def _sleeps(native: int) -> bool:
    """Say whether a thread waits for something else than a processor."""
    try:
        with open(f"/proc/self/task/{native}/stat", encoding="utf-8") as file:
            # The name in brackets may hold anything, brackets too.
            return file.read().rpartition(")")[2].split()[0] == "S"
    except (OSError, ValueError, IndexError):
        return False


def _where_it_is(
    thread: int, files: Mapping[str, str], seconds: float, asleep: bool
) -> Trouble:
    message = f"still running after {seconds:g} s"
    mend = "Does the loop around it end? Or is this more work than need be?"
    if asleep:
        mend = "What does it wait for?"
    frame, _ = own_frame(frame_of(thread), files.__contains__)
    if frame is None:
        return Trouble("timeout", message)
    return at_line(Trouble("timeout", f"{message}. {mend}"), frame, files)


def at_line(trouble: Trouble, frame: FrameType, files: Mapping[str, str]) -> Trouble:
    """Put a trouble on the line of a learner's frame."""
    file, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(file, line).rstrip("\n")[:200]
    return replace(trouble, line=line, text=text, cell=files[file])
