"""Starting workers: the warm parent, its sandbox, its environment."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass

from autograder.supervisor import sandbox
from autograder.supervisor.link import InfrastructureError, Worker, WorkerEnded
from autograder.worker import landlock
from autograder.worker.cells import CUDA_FILE

# A source that every working toolchain compiles; the self-test's, which finds it in the
# cache.
SMALLEST = """
__global__ void twice(const int* x, int* out) {
    out[threadIdx.x] = 2 * x[threadIdx.x];
}
"""
_START_S = 120.0
# What of the user's environment a compiler and a GPU need; nothing else is passed on.
_KEPT = (
    *("PATH", "CXX", "LD_LIBRARY_PATH", "KERNELWRIGHT_THREADS"),
    *("CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
)


def warm_toolchain(device: str) -> None:
    """Build what every compilation shares, in the cache that workers only read.

    A worker's own cache starts empty: without this each would compile the
    emulator's headers anew, and its runtime. The plain one serves a machine without
    a GPU, the traced one every machine.
    """
    import torch

    from kernelwright import cuda
    from kernelwright.cache import cache_in
    from kernelwright.errors import KernelwrightError

    # Where no compiler is to be had, the first exercise will say so.
    with contextlib.suppress(KernelwrightError), cache_in(sandbox.shared_cache()):
        kernel = cuda.compile(SMALLEST, name=CUDA_FILE, backend="emulator")["twice"]
        x = torch.zeros(1, dtype=torch.int32)
        kernel.trace[1, 1](x, torch.empty_like(x))


@dataclass(frozen=True)
class Limits:
    """What one worker may use."""

    memory_bytes: int = 8 << 30
    cpu_s: int = 120
    file_bytes: int = 1 << 30
    files: int = 256


class ForkServer:
    """The warm parent of workers, started once and kept.

    Args:
        interpret: whether Triton's interpreter is used where Triton is.
        device: ``cpu`` or ``cuda``.
        limits: what each worker may use.
    """

    def __init__(
        self, *, interpret: bool, device: str, limits: Limits | None = None
    ) -> None:
        self.interpret = interpret
        self.device = device
        self.limits = limits or Limits()
        self.tier = sandbox.detect()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log: tempfile._TemporaryFileWrapper[bytes] | None = None
        self._ready = False

    def start(self) -> None:
        """Start the server's process and return at once; it warms up by itself."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root = str(sandbox.PACKAGES)
        program = (
            f"import sys; sys.path.insert(0, {root!r}); "
            "from autograder.worker.fork_server import main; main(int(sys.argv[1]))"
        )
        argv = [sys.executable, "-P", "-c", program, str(theirs.fileno())]
        self._log = tempfile.NamedTemporaryFile(prefix="kw-server-")  # noqa: SIM115
        self._process = subprocess.Popen(
            sandbox.command(self.tier, argv),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(theirs.fileno(),),
            env=self._environment(),
            cwd="/",
            start_new_session=True,
        )
        theirs.close()
        self._control = ours
        self._ready = False

    @property
    def pid(self) -> int | None:
        """The server's process, the ancestor of every worker's."""
        return self._process.pid if self._process is not None else None

    def spawn(self, *, private: bool = True, loopback: bool = False) -> Worker:
        """Fork a fresh worker.

        Args:
            private: give it namespaces of its own where the machine allows.
            loopback: let it connect to itself, where its network is its own.

        Raises:
            InfrastructureError: the server does not answer.
        """
        self.start()
        self._await_ready()
        assert self._control is not None
        pipes = [os.pipe() for _ in range(5)]
        # (request, reply, output, status, leash): who reads, who writes.
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1], pipes[3][1], pipes[4][0]]
        ours = [pipes[0][1], pipes[1][0], pipes[2][0], pipes[3][0], pipes[4][1]]
        options = {
            "readable": sandbox.readable() if self._landlock else (),
            "devices": sandbox.devices(gpu=self.device != "cpu"),
            "landlock": self._landlock,
            "cuda": self.device != "cpu",
            "memory_bytes": self.limits.memory_bytes,
            "cpu_s": self.limits.cpu_s,
            "file_bytes": self.limits.file_bytes,
            "files": self.limits.files,
            "private": private,
            "loopback": loopback,
        }
        try:
            socket.send_fds(self._control, [json.dumps(options).encode()], theirs)
        except OSError as error:
            for fd in ours:
                os.close(fd)
            raise self._broken("the workers' parent is gone") from error
        finally:
            for fd in theirs:
                os.close(fd)
        return Worker(ours)

    def close(self) -> None:
        """End the server and all that it started."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    @property
    def _landlock(self) -> bool:
        return self.tier.name != "plain" and landlock.version() > 0

    def _environment(self) -> dict[str, str]:
        """Return the scrubbed environment: nothing of the user's but what is named."""
        env = {name: os.environ[name] for name in _KEPT if name in os.environ}
        env.update(
            HOME="/tmp",
            LANG="C.UTF-8",
            PYTHONDONTWRITEBYTECODE="1",
            PYTHONNOUSERSITE="1",
            OPENBLAS_NUM_THREADS="1",
            # A thread that spins for its next piece of work takes the time of the
            # other workers: half of all, where two share two processors.
            OMP_WAIT_POLICY="passive",
            KERNELWRIGHT_CACHE="/tmp/kernelwright",
            KERNELWRIGHT_CACHE_SHARED=str(sandbox.shared_cache()),
            KERNELWRIGHT_BACKEND="gpu" if self.device == "cuda" else "emulator",
        )
        if self.interpret:
            env["TRITON_INTERPRET"] = "1"
        return env

    def _await_ready(self) -> None:
        if self._ready:
            return
        assert self._control is not None
        self._control.settimeout(_START_S)
        try:
            answer = self._control.recv(1 << 16)
        except OSError as error:
            raise self._broken("the workers' parent does not start") from error
        finally:
            self._control.settimeout(None)
        if not answer:
            raise self._broken("the workers' parent ended while it started")
        self._ready = True

    def _broken(self, what: str) -> InfrastructureError:
        said = ""
        if self._log is not None:
            with contextlib.suppress(OSError):
                size = os.fstat(self._log.fileno()).st_size
                start = max(0, size - 2000)
                said = os.pread(self._log.fileno(), 2000, start).decode(
                    "utf-8", "replace"
                )
        self.close()
        return InfrastructureError(f"{what}. {said}".strip())


__all__ = [
    "ForkServer",
    "InfrastructureError",
    "Limits",
    "Worker",
    "WorkerEnded",
    "warm_toolchain",
]
