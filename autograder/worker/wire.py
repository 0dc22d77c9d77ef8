"""How supervisor and worker talk: a JSON header and raw bytes, never pickle.

A message is a four-byte little-endian length, that many bytes of JSON, and then the
blobs whose lengths the header's ``blobs`` list names. The side that reads decides
how large a header and how many bytes it is willing to take.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

Header = dict[str, Any]

# A reply holds messages and diagnostics, never data: what is longer is no reply.
HEADER_LIMIT = 1 << 20
# No honest header nests deeper; a deep one would overflow the parser's stack.
DEPTH_LIMIT = 16


class WireError(Exception):
    """What arrived is not a message."""


def pack(header: Header, blobs: Sequence[bytes | memoryview] = ()) -> list[memoryview]:
    """Return the pieces to write, in order."""
    full = {**header, "blobs": [len(memoryview(b).cast("B")) for b in blobs]}
    text = json.dumps(full, allow_nan=False).encode()
    prefix = len(text).to_bytes(4, "little") + text
    return [memoryview(prefix), *(memoryview(b).cast("B") for b in blobs)]


def parse_header(text: bytes) -> Header:
    """Parse a header that an untrusted process wrote.

    Raises:
        WireError: it is not a JSON object, nests too deep, or lists no blobs.
    """
    # A recursive parser must not be the first to find out: count brackets by hand.
    depth = deepest = 0
    quoted = escaped = False
    for byte in text:
        if quoted:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                quoted = False
        elif byte == 0x22:
            quoted = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    if deepest > DEPTH_LIMIT:
        raise WireError("the header nests too deep")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError("the header is not JSON") from error
    if not isinstance(header, dict):
        raise WireError("the header is not an object")
    blobs = header.get("blobs")
    if not isinstance(blobs, list) or not all(
        isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in blobs
    ):
        raise WireError("the header does not list its blobs")
    return header


def read_exactly(fd: int, size: int) -> bytearray:
    """Read ``size`` bytes from a blocking descriptor.

    Raises:
        EOFError: the other side closed before that.
    """
    data = bytearray(size)
    view = memoryview(data)
    done = 0
    while done < size:
        got = os.readv(fd, [view[done : done + (1 << 20)]])
        if got == 0:
            raise EOFError
        done += got
    return data


def read_message(fd: int) -> tuple[Header, list[bytearray]]:
    """Read one message from a trusted sender."""
    size = int.from_bytes(read_exactly(fd, 4), "little")
    header = parse_header(bytes(read_exactly(fd, size)))
    return header, [read_exactly(fd, n) for n in header["blobs"]]


def write_message(fd: int, header: Header, blobs: Sequence[bytes] = ()) -> None:
    """Write one message to a blocking descriptor."""
    for piece in pack(header, blobs):
        done = 0
        while done < len(piece):
            done += os.write(fd, piece[done : done + (1 << 20)])
