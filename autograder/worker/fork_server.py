"""The warm parent: has imported torch and the workbench, and forks keepers.

It reads requests from a socket that only the supervisor holds, never runs a
learner's code, and never touches CUDA, which does not survive a fork. Whether
Triton interprets or compiles is fixed when it is imported: there is one such
parent for each.
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import warnings
from typing import Any

from autograder.worker import system
from autograder.worker.confine import namespaces_work
from autograder.worker.keeper import Ends, keep
from autograder.worker.operations import operations_seen
from autograder.worker.serve import serve

_FD_COUNT = 5
_IDLE_S = 0.2


def main(control_fd: int) -> None:
    """Import what workers need, say so, and fork a keeper for each request."""
    # The supervisor stops this process by closing the socket; a Ctrl-C in the
    # terminal is the supervisor's to act on.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    system.set_dumpable(False)
    _warm()
    # What is alive now is shared with every worker: the collector must not touch
    # (and so copy) its pages.
    gc.collect()
    gc.freeze()
    namespaces = namespaces_work()
    control.sendall(json.dumps({"ready": os.getpid()}).encode() + b"\n")
    signal.signal(signal.SIGCHLD, _reap)
    further = True
    while True:
        # Only some workers need it, and nobody waits for it: a moment without requests.
        if further and not select.select([control], [], [], _IDLE_S)[0]:
            _warm_further()
            gc.freeze()
            further = False
        request = _receive(control)
        if request is None:
            return
        options, fds = request
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                control.close()
                keep(Ends(*fds), options, serve, namespaces)
                code = 0
            finally:
                os._exit(code)
        for fd in fds:
            os.close(fd)


def _warm() -> None:
    """Import what takes long, so that no worker pays for it."""
    warnings.simplefilter("ignore")
    import numpy  # noqa: F401
    import torch

    import kernelwright  # noqa: F401

    with contextlib.suppress(ImportError):
        import triton
        import triton.language  # noqa: F401
    with contextlib.suppress(Exception):
        # Present on machines with a GPU only; importing it starts no CUDA.
        import cupy  # noqa: F401
    # A first operation loads what torch loads lazily.
    torch.zeros(2).add(1)


def _warm_further() -> None:
    """Import what only some workers need."""
    import torch

    # Where a torch cannot be kept from loading its compiler for this, a second's work.
    with contextlib.suppress(Exception), operations_seen():
        torch.zeros(2)
    if os.environ.get("KERNELWRIGHT_BACKEND") == "emulator":
        # What reads an answer's machine code; next to a GPU it might start CUDA.
        with contextlib.suppress(Exception):
            import cuda.core  # noqa: F401


def _receive(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Wait for a request and its descriptors; None when the supervisor is gone."""
    while True:
        try:
            text, ancillary, _, _ = control.recvmsg(
                1 << 16, socket.CMSG_LEN(_FD_COUNT * 4)
            )
            break
        except InterruptedError:
            continue
    if not text:
        return None
    fds = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % 4])
    if len(fds) != _FD_COUNT:
        raise SystemExit("the request came without its descriptors")
    return json.loads(text), list(fds)


def _reap(signum: int, frame: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main(int(sys.argv[1]))
