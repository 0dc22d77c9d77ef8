"""What is taken away from a worker before the first line of a learner's code runs."""

from __future__ import annotations

import contextlib
import os
import resource
import tempfile
from dataclasses import dataclass
from typing import Any

from autograder.worker import landlock, system


@dataclass(frozen=True)
class Confinement:
    """How one worker is held, as the supervisor asks for it.

    Args:
        folder: the worker's own folder: its home, its temporary files, its caches.
        readable: what it may read and execute, where Landlock is to be had.
        devices: what it may read and write beside its folder.
        landlock: refuse to run without Landlock.
        loopback: let it connect to itself, over the network of its own that it has.
        cuda: it will use a GPU: no limit on the address space, which CUDA reserves.
        memory_bytes, cpu_s, file_bytes, files: the limits.
    """

    folder: str
    readable: tuple[str, ...]
    devices: tuple[str, ...]
    landlock: bool
    loopback: bool
    cuda: bool
    memory_bytes: int
    cpu_s: int
    file_bytes: int
    files: int

    @staticmethod
    def from_header(data: dict[str, Any], folder: str, private: bool) -> Confinement:
        """Read what the supervisor sent.

        Args:
            data: the supervisor's words.
            folder: the worker's own.
            private: whether its network is its own; else it has none.
        """
        return Confinement(
            folder=folder,
            readable=tuple(data["readable"]),
            devices=tuple(data["devices"]),
            landlock=bool(data["landlock"]),
            loopback=private and bool(data.get("loopback")),
            cuda=bool(data["cuda"]),
            memory_bytes=int(data["memory_bytes"]),
            cpu_s=int(data["cpu_s"]),
            file_bytes=int(data["file_bytes"]),
            files=int(data["files"]),
        )


def own_namespaces(cuda: bool) -> bool:
    """Give this process's children process numbers and a network of their own.

    Returns:
        Whether the machine allowed it. A namespace of processes is what ends a fork
        bomb: the kernel kills all that is in it when its first process dies.
    """
    flags = system.CLONE_NEWPID | system.CLONE_NEWNET
    if not cuda:
        flags |= system.CLONE_NEWIPC
    user, group = os.geteuid(), os.getegid()
    try:
        system.unshare(flags)
    except OSError:
        pass
    else:
        return True
    try:
        # The maps in /proc belong to root while this process may not be traced.
        system.set_dumpable(True)
        system.unshare(flags | system.CLONE_NEWUSER)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    except OSError:
        return False
    finally:
        system.set_dumpable(False)
    return True


def namespaces_work() -> bool:
    """Try out, in a process of its own, whether workers can have namespaces."""
    probe = os.fork()
    if probe == 0:
        code = 1
        try:
            if own_namespaces(cuda=False):
                first = os.fork()
                if first == 0:
                    inner = 1
                    try:
                        system.mount_own_proc()
                        inner = 0
                    finally:
                        os._exit(inner)
                code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(probe, 0)[1]) == 0


def confine(how: Confinement) -> None:
    """Take away what the worker does not need; it cannot be had back.

    Raises:
        OSError: something could not be taken away that should have been.
    """
    os.environ.update(
        HOME=how.folder,
        # Libraries name their caches after the user; /etc/passwd cannot be read.
        USER="learner",
        LOGNAME="learner",
        TMPDIR=how.folder,
        KERNELWRIGHT_CACHE=f"{how.folder}/cache",
        TRITON_CACHE_DIR=f"{how.folder}/triton",
        CUPY_CACHE_DIR=f"{how.folder}/cupy",
        CUDA_CACHE_PATH=f"{how.folder}/cuda",
        XDG_CACHE_HOME=f"{how.folder}/cache",
    )
    tempfile.tempdir = how.folder
    os.chdir(how.folder)
    os.umask(0o077)
    _limits(how)
    # Its own /proc entries must be its own again: it was forked from a process that
    # may not be read.
    system.set_dumpable(True)
    system.forbid_new_privileges()
    if how.landlock:
        own = f"/proc/{os.getpid()}"
        # CUDA names its threads through /proc, and does not start where it cannot
        # (cuInit answers 304, "OS call failed").
        threads = (f"{own}/task",) if how.cuda else ()
        landlock.restrict(
            (*how.readable, "/proc/self", own),
            (how.folder, *how.devices, *threads),
            network=how.loopback,
        )
    system.drop_capabilities()
    system.fill_fresh_memory(0xA5)


def _limits(how: Confinement) -> None:
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, how.cpu_s)
    _limit(resource.RLIMIT_FSIZE, how.file_bytes)
    _limit(resource.RLIMIT_NOFILE, how.files)
    if not how.cuda:
        _limit(resource.RLIMIT_AS, how.memory_bytes)


def _limit(what: int, value: int) -> None:
    # A lower limit that the machine's owner set stays.
    _, hard = resource.getrlimit(what)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(what, (value, value))


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)
