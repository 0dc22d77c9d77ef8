"""One worker as the supervisor sees it: requests in, bytes out, by a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

from autograder.worker.wire import HEADER_LIMIT, Header, WireError, pack, parse_header

_END_S = 20.0
_HEAD, _TAIL = 48 << 10, 16 << 10


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

    def of_the_answer(self) -> str:
        """Return it without the last words of a heap that the answer damaged."""
        lines = self.text().splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith(_HEAP_DAMAGED))


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
            header: the request.
            blobs: its raw bytes.
            deadline_s: wall time for all of it.
            sizes: the only lengths of blobs that are taken, besides none at all;
                ``None`` takes any up to ``most_bytes``.
            most_bytes: how many bytes are taken where ``sizes`` is not given.

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

    @property
    def ended_privately(self) -> bool:
        """Whether it had a namespace of processes of its own; known once it ended."""
        return self._await_status().get("private") is True

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
            printed = self.capture.text() if code - 128 == _ABORT else ""
            if any(said in printed for said in _HEAP_DAMAGED):
                words = _OUTSIDE
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


_ABORT = 6
# What glibc prints before it aborts: something wrote over its books.
_HEAP_DAMAGED = (
    *("free(): ", "malloc(): ", "realloc(): ", "munmap_chunk(): "),
    *("double free or corruption", "corrupted size", "corrupted double-linked list"),
)
_OUTSIDE = (
    "a load or store outside of its tensors damaged the process's memory (SIGABRT). "
    "Is every index guarded, and every tl.load and tl.store masked with mask=i < n?"
)
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
