"""The few system calls that Python does not wrap, each as a function that says why."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_CAPABILITY_VERSION_3 = 0x20080522
_M_PERTURB = -6
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_REC, _MS_PRIVATE = 1 << 14, 1 << 18

CLONE_NEWNS, CLONE_NEWIPC = 0x00020000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (
    *(ctypes.c_char_p,) * 3,
    ctypes.c_ulong,
    ctypes.c_char_p,
)


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapData(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def set_dumpable(value: bool) -> None:
    """Allow or refuse others of the same user to trace this process or read it."""
    _prctl(_PR_SET_DUMPABLE, int(value))


def become_subreaper() -> None:
    """Take in orphans, so that what a worker leaves behind can be found and ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signal: int) -> None:
    """Be sent ``signal`` when the thread that started this process ends."""
    _prctl(_PR_SET_PDEATHSIG, signal)


def forbid_new_privileges() -> None:
    """Make set-user-id programs powerless from here on; Landlock asks for it."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Give up every capability, also those that a program started later would get.

    Raises:
        OSError: the kernel refused.
    """
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # past the last one, or not allowed: then there are none to bound
    header = _CapHeader(_CAPABILITY_VERSION_3, 0)
    nothing = (_CapData * 2)()
    _checked(_libc.capset(ctypes.byref(header), ctypes.byref(nothing)))


def unshare(flags: int) -> None:
    """Move this process (its later children, for processes' numbers) into new
    namespaces.

    Raises:
        OSError: this machine does not allow it.
    """
    _checked(_libc.unshare(flags))


def mount_own_proc() -> None:
    """Show the processes of this process's namespace under ``/proc``, and no others.

    Programs look themselves up there by their number, which is another one outside.

    Raises:
        OSError: this machine does not allow it.
    """
    unshare(CLONE_NEWNS)
    _checked(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))
    quiet = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _checked(_libc.mount(b"proc", b"/proc", b"proc", quiet, None))


def raise_loopback() -> None:
    """Turn the loopback on, which a fresh network namespace has turned off.

    Raises:
        OSError: this process may not change its network.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def fill_fresh_memory(byte: int) -> None:
    """Have ``malloc`` fill what it hands out: ``torch.empty`` must not look like 0."""
    _libc.mallopt(_M_PERTURB, byte)


def _prctl(option: int, value: int) -> None:
    _checked(
        _libc.prctl(
            ctypes.c_int(option),
            ctypes.c_ulong(value),
            ctypes.c_ulong(0),
            ctypes.c_ulong(0),
            ctypes.c_ulong(0),
        )
    )


def _checked(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
