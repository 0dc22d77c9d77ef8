"""Landlock through system calls: which files a worker may see, and whom it may signal.

Source: the kernel's Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # one number on every architecture
_VERSION_FLAG = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
# What applies to a file that is no folder; the kernel refuses the others there.
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
# How many file rights each version of the interface knows, from version 1 on.
_FS_RIGHTS = (13, 14, 15, 15, 16)
_TCP_RIGHTS = 0b11
_SCOPE_RIGHTS = 0b11  # abstract sockets, signals

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = [
        ("fs", ctypes.c_uint64),
        ("net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def version() -> int:
    """Return the version of Landlock that the running kernel offers, 0 for none."""
    got = int(_libc.syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION_FLAG))
    return max(got, 0)


def restrict(
    readable: Iterable[str], writable: Iterable[str], *, network: bool = False
) -> None:
    """Confine this process, and all that it starts, to the given paths for good.

    It can then open nothing else, connect nowhere (version 4 on), signal nobody
    outside (version 6 on), and trace nobody outside. Paths that do not exist are
    passed over. ``no_new_privs`` must be set already.

    Args:
        readable: what may be read and executed.
        writable: what may be written, too.
        network: let it connect, where its network is one of its own.

    Raises:
        OSError: the kernel refused; the caller must not go on as if confined.
    """
    abi = version()
    if abi < 1:
        raise OSError("this kernel has no Landlock")
    handled = (1 << _FS_RIGHTS[min(abi, len(_FS_RIGHTS)) - 1]) - 1
    attributes = _Ruleset(
        handled,
        _TCP_RIGHTS if abi >= 4 and not network else 0,
        _SCOPE_RIGHTS if abi >= 6 else 0,
    )
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _checked(
        _libc.syscall(_CREATE, ctypes.byref(attributes), ctypes.c_size_t(size), 0)
    )
    try:
        for path in readable:
            _allow(ruleset, path, _READ & handled)
        for path in writable:
            # An ioctl on a device is how a CUDA program talks to the driver.
            _allow(ruleset, path, handled)
        _checked(_libc.syscall(_RESTRICT, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _FILE_RIGHTS
        rule = _PathRule(rights, fd)
        _checked(
            _libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
        )
    finally:
        os.close(fd)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)
