"""A trusted process joins the workers' process numbers.

CUDA's handles to shared memory cannot cross namespaces of processes, so that who
shares memory with a worker must count processes as the worker does. It stays
outside of everything else that holds a worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

from autograder.worker import system

_libc = ctypes.CDLL(None, use_errno=True)


def same_numbers(pid: int) -> bool:
    """Say whether a process counts processes as this one does."""
    with contextlib.suppress(OSError):
        mine, theirs = (os.stat(f"/proc/{p}/ns/pid").st_ino for p in ("self", pid))
        return mine == theirs
    return True


def join(pid: int) -> None:
    """Go on in the process namespace of ``pid``; only the child returns from here.

    Call it before anything starts a thread.

    Raises:
        OSError: this machine does not allow it.
    """
    folder = Path(f"/proc/{pid}/ns")
    with open(folder / "user") as user, open(folder / "pid") as numbers:
        if os.fstat(user.fileno()).st_ino != os.stat("/proc/self/ns/user").st_ino:
            # Whoever made a user namespace has every right in it.
            _setns(user.fileno(), system.CLONE_NEWUSER)
        _setns(numbers.fileno(), system.CLONE_NEWPID)
    child = os.fork()  # the numbers hold for children only
    if child == 0:
        system.die_with_parent(signal.SIGKILL)
        system.mount_own_proc()
        return
    code = 70
    with contextlib.suppress(ChildProcessError):
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(128 - code if code < 0 else code)


def _setns(fd: int, kind: int) -> None:
    if _libc.setns(fd, kind) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
