"""The supervisor's end of a process: requests out, replies in, each by a deadline."""

from __future__ import annotations

import contextlib
import os
import select
import time

from autograder.worker.wire import (
    HEADER_LIMIT,
    Header,
    WireError,
    pack,
    parse_header,
)


class Gone(Exception):
    """The process ended, or what it sent is no message."""


class Late(Exception):
    """The reply did not come in time."""


class Channel:
    """Two pipes to one process, read without trusting what comes.

    Args:
        request: descriptor that is written to; owned from here on.
        reply: descriptor that is read; owned from here on.
    """

    def __init__(self, request: int, reply: int) -> None:
        self._request, self._reply = request, reply
        os.set_blocking(request, False)
        os.set_blocking(reply, False)
        self._poll = select.poll()
        self._poll.register(reply, select.POLLIN)

    def ask(self, header: Header, *, within_s: float) -> Header:
        """Send a request and wait for its reply.

        Raises:
            Gone: the process is no more, or does not keep to the protocol.
            Late: the time is up.
        """
        deadline = time.monotonic() + within_s
        self._send(header, deadline)
        size = int.from_bytes(self._read(4, deadline), "little")
        if size > HEADER_LIMIT:
            raise Gone("it sent more than a reply can hold")
        try:
            reply = parse_header(self._read(size, deadline))
        except WireError as error:
            raise Gone(str(error)) from error
        if reply["blobs"]:
            raise Gone("it sent data where none was asked for")
        return reply

    def close(self) -> None:
        """Drop both pipes; the process sees the end of its requests."""
        for fd in (self._request, self._reply):
            with contextlib.suppress(OSError):
                os.close(fd)

    def _send(self, header: Header, deadline: float) -> None:
        writable = select.poll()
        writable.register(self._request, select.POLLOUT)
        for piece in pack(header):
            done = 0
            while done < len(piece):
                try:
                    done += os.write(self._request, piece[done:])
                except BlockingIOError:
                    self._wait(writable, deadline)
                except OSError as error:
                    raise Gone("it has ended") from error

    def _read(self, size: int, deadline: float) -> bytes:
        data = b""
        while len(data) < size:
            try:
                got = os.read(self._reply, size - len(data))
            except BlockingIOError:
                self._wait(self._poll, deadline)
                continue
            except OSError as error:
                raise Gone("it has ended") from error
            if not got:
                raise Gone("it has ended")
            data += got
        return data

    @staticmethod
    def _wait(poll: select.poll, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise Late
