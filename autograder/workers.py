"""The supervisor's side of a worker: start it, talk to it, hold its deadline."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

from autograder import sandbox
from autograder.worker.wire import HEADER_LIMIT, Header, WireError, pack, parse_header

_SMALLEST = "__global__ void warm(int* x) { x[0] = 1; }\n"
_START_S = 120.0
_END_S = 20.0
_HEAD, _TAIL = 48 << 10, 16 << 10


def warm_toolchain(device: str) -> None:
    """Build what every compilation shares, in the cache that workers only read.

    A worker's own cache starts empty: without this each would compile the
    emulator's headers anew.
    """
    if device != "cpu":
        return
    from kernelwright import cuda
    from kernelwright.errors import KernelwrightError

    # Where no compiler is to be had, the first exercise will say so.
    with contextlib.suppress(KernelwrightError):
        cuda.compile(_SMALLEST, name="warm.cu", backend="emulator")


class InfrastructureError(Exception):
    """Grading itself failed: not the learner's doing, so tried again."""


class WorkerEnded(Exception):
    """A worker gave no answer: it ran out of time, or ended before it answered.

    Args:
        status: ``timeout`` or ``crashed``.
        message: for the learner.
    """

    def __init__(self, status: Literal["timeout", "crashed"], message: str) -> None:
        super().__init__(message)
        self.status: Literal["timeout", "crashed"] = status
        self.message = message


@dataclass(frozen=True)
class Limits:
    """What one worker may use."""

    memory_bytes: int = 8 << 30
    cpu_s: int = 120
    file_bytes: int = 1 << 30
    files: int = 256


@dataclass
class Capture:
    """What a worker printed: its beginning and its end, and how much there was."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    total: int = 0

    def add(self, data: bytes) -> None:
        """Keep what fits; the rest is counted and thrown away."""
        self.total += len(data)
        room = _HEAD - len(self.head)
        self.head += data[:room]
        if len(data) > room:
            self.tail += data[room:][-_TAIL:]
            del self.tail[:-_TAIL]

    def text(self) -> str:
        """Return it as text, with a line where something was left out."""
        left = self.total - len(self.head) - len(self.tail)
        parts = [self.head.decode("utf-8", "replace")]
        if left > 0:
            parts.append(f"\n… {left:,} bytes left out …\n")
        parts.append(self.tail.decode("utf-8", "replace"))
        return "".join(parts)


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
            "from autograder.worker.server import main; main(int(sys.argv[1]))"
        )
        argv = [sys.executable, "-c", program, str(theirs.fileno())]
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

    def spawn(self, *, private: bool = True) -> Worker:
        """Fork a fresh worker.

        Args:
            private: give it namespaces of its own where the machine allows.

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
            "devices": sandbox.devices(),
            "landlock": self._landlock,
            "cuda": self.device != "cpu",
            "memory_bytes": self.limits.memory_bytes,
            "cpu_s": self.limits.cpu_s,
            "file_bytes": self.limits.file_bytes,
            "files": self.limits.files,
            "private": private,
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
        return self.tier.name != "plain" and sandbox.landlock.version() > 0

    def _environment(self) -> dict[str, str]:
        """Return the scrubbed environment: nothing of the user's but what is named."""
        kept = ("PATH", "CXX", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH")
        kept += ("LD_LIBRARY_PATH", "NVIDIA_VISIBLE_DEVICES", "KERNELWRIGHT_THREADS")
        env = {name: os.environ[name] for name in kept if name in os.environ}
        env.update(
            HOME="/tmp",
            LANG="C.UTF-8",
            PYTHONDONTWRITEBYTECODE="1",
            PYTHONNOUSERSITE="1",
            OPENBLAS_NUM_THREADS="1",
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
                said = os.pread(self._log.fileno(), 2000, start).decode("utf-8", "replace")
        self.close()
        return InfrastructureError(f"{what}. {said}".strip())


class Worker:
    """One worker process: requests in, bytes out, all by a deadline."""

    def __init__(self, ends: Sequence[int]) -> None:
        self._request, self._reply, self._output, self._status, self._leash = ends
        for fd in ends:
            os.set_blocking(fd, False)
        self.capture = Capture()
        self._received = bytearray()
        self._open = True

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def ask(
        self,
        header: Header,
        blobs: Sequence[bytes] = (),
        *,
        deadline_s: float,
        sizes: Sequence[int] | None = None,
        most_bytes: int = 0,
    ) -> tuple[Header, list[bytes]]:
        """Send a request and wait for its answer.

        Args:
            header, blobs: the request.
            deadline_s: wall time for all of it.
            sizes: the only lengths of blobs that are taken, besides none at all;
                ``None`` takes any up to ``most_bytes``.

        Raises:
            WorkerEnded: no answer, or none that can be read.
            InfrastructureError: nobody says how the worker ended.
        """
        deadline = time.monotonic() + deadline_s
        out = deque(piece for piece in pack(header, blobs) if len(piece))
        answer = _Answer(self._received, sizes, most_bytes)
        watch = select.poll()
        watch.register(self._reply, select.POLLIN)
        watch.register(self._output, select.POLLIN)
        watch.register(self._status, select.POLLIN)
        if out:
            watch.register(self._request, select.POLLOUT)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                self.end()
                raise WorkerEnded("timeout", f"still running after {deadline_s:g} s")
            events = dict(watch.poll(left * 1000))
            if self._request in events and not self._send(out):
                watch.unregister(self._request)
            if self._output in events and not self._drain():
                watch.unregister(self._output)
            if self._reply in events or self._status in events:
                try:
                    done = answer.take(self._reply)
                except WireError as error:
                    self.end()
                    raise WorkerEnded(
                        "crashed",
                        f"what came back is no answer of the grader's ({error}); only "
                        "the exercise's own code may run in the cell",
                    ) from None
                if done:
                    return answer.header, answer.blobs
            if self._status in events:
                raise self._ended()
            if answer.closed:
                watch.unregister(self._reply)
                answer.closed = False

    def end(self) -> None:
        """Kill whatever is left of the worker, and wait until it is gone."""
        if not self._open:
            return
        self._open = False
        os.close(self._leash)
        try:
            self._await_status()
        finally:
            self._drain()
            for fd in (self._request, self._reply, self._output, self._status):
                os.close(fd)

    def _send(self, out: deque[memoryview]) -> bool:
        """Write what the pipe takes; say whether there is more to write."""
        try:
            while out:
                sent = os.write(self._request, out[0][: 1 << 20])
                out[0] = out[0][sent:]
                if not len(out[0]):
                    out.popleft()
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return False

    def _drain(self) -> bool:
        """Take what was printed; say whether more can come."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(64):  # whoever prints without end must not hold us here
                data = os.read(self._output, 1 << 16)
                if not data:
                    return False
                self.capture.add(data)
        return True

    def _ended(self) -> WorkerEnded:
        """Put into words how the worker ended by itself."""
        record = self._await_status()
        self.end()
        if record.get("crowded"):
            return WorkerEnded("crashed", "it started more than 256 processes")
        code = record.get("status")
        if code in (0, None):
            words = "it ended its own process before it gave its outputs"
        elif isinstance(code, int) and code > 128:
            words = _SIGNALS.get(code - 128, f"it was ended by signal {code - 128}")
        else:
            words = f"its process ended with exit code {code}"
        return WorkerEnded("crashed", words)

    def _await_status(self) -> Header:
        """Read the keeper's record; everything of the worker's is dead by then."""
        if hasattr(self, "_record"):
            return self._record
        data = b""
        deadline = time.monotonic() + _END_S
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        poll.register(self._output, select.POLLIN)
        while time.monotonic() < deadline:
            events = dict(poll.poll(100))
            if self._output in events and not self._drain():
                poll.unregister(self._output)
            if self._status not in events:
                continue
            got = os.read(self._status, 4096)
            data += got
            if not got or data.endswith(b"\n"):
                break
        else:
            raise InfrastructureError("a worker could not be ended")
        try:
            self._record: Header = json.loads(data) if data else {}
        except ValueError:
            self._record = {}
        return self._record


_SIGNALS = {
    4: "it ran an illegal instruction (SIGILL)",
    6: "it aborted (SIGABRT)",
    7: "it touched memory that is not there (SIGBUS)",
    8: "it divided an integer by zero (SIGFPE)",
    9: "it was killed (SIGKILL): too much memory, or by its own doing",
    11: "it touched memory that is not its own (segmentation fault)",
    24: "it used up its CPU time (SIGXCPU)",
    25: "it wrote a file larger than allowed (SIGXFSZ)",
}


class _Answer:
    """An answer that arrives in pieces from a process that is not trusted."""

    def __init__(
        self, received: bytearray, sizes: Sequence[int] | None, most_bytes: int
    ) -> None:
        self.header: Header = {}
        self.blobs: list[bytes] = []
        self.closed = False
        self._data = received
        self._sizes = sizes
        self._most = most_bytes
        self._wanted: int | None = None

    def take(self, fd: int) -> bool:
        """Read what is there; say whether the answer is complete.

        Raises:
            WireError: it is not a message, or not of the sizes that are taken.
        """
        with contextlib.suppress(BlockingIOError):
            while not self._complete():
                piece = os.read(fd, min(1 << 20, self._missing()))
                if not piece:
                    self.closed = True
                    break
                self._data += piece
        if not self._complete():
            return False
        size = 4 + int.from_bytes(self._data[:4], "little")
        for length in self.header["blobs"]:
            self.blobs.append(bytes(self._data[size : size + length]))
            size += length
        self._data.clear()
        return True

    def _missing(self) -> int:
        """Return how many bytes may be read next: never past the message's end."""
        if len(self._data) < 4:
            return 4 - len(self._data)
        size = 4 + int.from_bytes(self._data[:4], "little")
        if len(self._data) < size:
            return size - len(self._data)
        assert self._wanted is not None
        return self._wanted - len(self._data)

    def _complete(self) -> bool:
        if len(self._data) < 4:
            return False
        size = int.from_bytes(self._data[:4], "little")
        if size > HEADER_LIMIT:
            raise WireError("its header is too long")
        if len(self._data) < 4 + size:
            return False
        if self._wanted is None:
            self.header = parse_header(bytes(self._data[4 : 4 + size]))
            listed = self.header["blobs"]
            if listed and self._sizes is not None and listed != list(self._sizes):
                raise WireError("its outputs are not of the right size")
            if self._sizes is None and sum(listed) > self._most:
                raise WireError("its outputs are too large")
            self._wanted = 4 + size + sum(listed)
        return len(self._data) >= self._wanted
