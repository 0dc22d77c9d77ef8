"""Packed weights in a file that opens at once, whatever its size.

    0    8 bytes   the magic: KWINT4, a carriage return and a line feed
    8    4 bytes   the version, 1
    12   4 bytes   the CRC-32 of the header
    16   8 bytes   the header's length, in bytes
    24   8 bytes   the file's length, in bytes
    32             the header, JSON: each tensor's dtype, shape, offset and CRC-32
    ...            the tensors' bytes, each from a multiple of 4,096 on

Numbers are little-endian. Opening reads the header alone; the rest is mapped, and a
page of it is read when somebody looks at it.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch

from solutions.int4.layout import Packed

_MAGIC, _VERSION = b"KWINT4\r\n", 1
_START = struct.Struct("<8sIIQQ")
_PAGE = 4096
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float16, torch.bfloat16, torch.float32, torch.float64,
        torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    )
}  # fmt: skip
_PARTS = ("words", "scales", "zeros")
Named = Mapping[str, "Packed | torch.Tensor"]


def save(path: str | os.PathLike[str], tensors: Named) -> None:
    """Write packed weights, and plain tensors, to a file for ``load_mmap``.

    The file appears under its name when it is whole, or not at all.

    Args:
        path: where to.
        tensors: each under its name.

    Raises:
        TypeError: something that is neither, or of another dtype, named.
        OSError: the disk's own.

    Cost: each byte written once, and its checksum computed.
    """
    header: dict[str, Any] = {}
    todo: list[tuple[dict[str, Any], torch.Tensor]] = []
    for name, given in tensors.items():
        entry: dict[str, Any] = {"parts": {}}
        if isinstance(given, Packed):
            entry["sizes"] = list(given[3:])
            parts = dict(zip(_PARTS, given[:3], strict=True))
        elif isinstance(given, torch.Tensor):
            parts = {"tensor": given}
        else:
            raise TypeError(
                f"save: {name!r} is {type(given).__name__}; wanted Packed or a tensor."
            )
        for part, tensor in parts.items():
            kind = str(tensor.dtype).removeprefix("torch.")
            if kind not in _DTYPES:
                raise TypeError(
                    f"save: {name!r} is {tensor.dtype}; wanted one of "
                    f"{', '.join(_DTYPES)}."
                )
            known = {"dtype": kind, "shape": list(tensor.shape)}
            entry["parts"][part] = known
            todo.append((known, tensor))
        header[name] = entry
    path = Path(path)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            _write(file, header, todo)
        os.chmod(scratch, 0o666 & ~_umask())
        os.replace(scratch, path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def load_mmap(
    path: str | os.PathLike[str], verify: bool = False
) -> dict[str, Packed | torch.Tensor]:
    """Open a file of packed weights without reading them.

    The tensors are on the CPU and share the file's pages with every process that maps
    it. What is written to them stays in this process.

    Args:
        path: a file that ``save`` wrote.
        verify: whether to read all of it, and compare its checksums.

    Returns:
        What was saved, by name.

    Raises:
        ValueError: a file that is something else, cut short or damaged; what was found
            there, and what was wanted.
        OSError: the file system's own.

    Cost: the header read. Whatever is used later is read then, once.
    """
    path = Path(path)
    with path.open("rb") as file:
        header = _header(path, file)
        # A private map: a write makes a copy of its page, and the file stays.
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    found: dict[str, Packed | torch.Tensor] = {}
    for name, entry in header.items():
        tensors = {
            part: _mapped(path, name, whole, known, verify)
            for part, known in entry.parts.items()
        }
        if entry.sizes is None:
            found[name] = tensors["tensor"]
        else:
            words, scales, zeros = (tensors[part] for part in _PARTS)
            found[name] = Packed(words, scales, zeros, *entry.sizes)
    return found


class _Entry(NamedTuple):
    """What a header says of one name."""

    parts: dict[str, dict[str, Any]]
    sizes: tuple[int, int, int] | None


def _write(
    file: BinaryIO,
    header: dict[str, Any],
    todo: list[tuple[dict[str, Any], torch.Tensor]],
) -> None:
    """Write the tensors, and then what is known of them, at the beginning."""
    # With the numbers that are not known yet, each as long as it can become.
    for known, tensor in todo:
        known.update(offset=2**62, nbytes=tensor.nbytes, crc32=2**32 - 1)
    room = _START.size + len(_text(header))
    offset = _up(room)
    for known, tensor in todo:
        bytes_of = tensor.detach().contiguous().cpu().flatten().view(torch.uint8)
        data = bytes_of.numpy().data
        known.update(offset=offset, crc32=zlib.crc32(data))
        file.seek(offset)
        file.write(data)
        offset = _up(offset + tensor.nbytes)
    file.truncate(offset)
    text = _text(header).ljust(room - _START.size)
    file.seek(0)
    start = _MAGIC, _VERSION, zlib.crc32(text), len(text), offset
    file.write(_START.pack(*start) + text)


def _header(path: Path, file: BinaryIO) -> dict[str, _Entry]:
    """Read what a file says of itself, and refuse what cannot be so."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(_START.size)
    if len(start) < _START.size or not start.startswith(_MAGIC):
        raise ValueError(
            f"{path} is no file of packed weights: it begins with {start[:8]!r}, "
            f"wanted {_MAGIC!r}. Write one with save."
        )
    _, version, crc32, length, whole = _START.unpack(start)
    if version != _VERSION:
        raise ValueError(
            f"{path} is of version {version}; this program reads {_VERSION}."
        )
    if size != whole:
        raise ValueError(
            f"{path} has {size:,} bytes; wanted {whole:,}, as its header says. It was "
            "cut short or added to: copy it again."
        )
    text = file.read(length) if length <= size else b""
    if len(text) != length or zlib.crc32(text) != crc32:
        raise ValueError(
            f"{path}: the header is damaged, its checksum is another. Copy it again."
        )
    try:
        return {name: _entry(each, size) for name, each in json.loads(text).items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{path}: the header does not describe tensors within the file: {error!r}."
        ) from error


def _entry(given: dict[str, Any], size: int) -> _Entry:
    parts = given["parts"]
    sizes = given.get("sizes")
    wanted = {"tensor"} if sizes is None else set(_PARTS)
    if set(parts) != wanted:
        raise ValueError(f"parts {sorted(parts)}, wanted {sorted(wanted)}")
    for known in parts.values():
        if known["dtype"] not in _DTYPES:
            raise ValueError(f"dtype {known['dtype']!r}")
        numbers = [*known["shape"], known["offset"], known["nbytes"], known["crc32"]]
        if any(type(n) is not int or n < 0 for n in numbers):
            raise ValueError(f"{numbers}, wanted numbers from 0")
        itemsize = _DTYPES[known["dtype"]].itemsize
        if math.prod(known["shape"]) * itemsize != known["nbytes"]:
            raise ValueError(f"{known['nbytes']} bytes of shape {known['shape']}")
        if known["offset"] % _PAGE or known["offset"] + known["nbytes"] > size:
            raise ValueError(f"bytes from {known['offset']} on, of {size}")
    if sizes is None:
        return _Entry(parts, None)
    rows, columns, group_size = sizes
    tiles = [-(-rows // 16), -(-columns // 64), 32, 4]
    groups = [-(-columns // group_size), tiles[0] * 16]
    shapes = [parts[part]["shape"] for part in _PARTS]
    if shapes != [tiles, groups, groups]:
        raise ValueError(f"shapes {shapes} of {sizes}")
    return _Entry(parts, (rows, columns, group_size))


def _mapped(
    path: Path, name: str, whole: mmap.mmap, known: dict[str, Any], verify: bool
) -> torch.Tensor:
    dtype, shape = _DTYPES[known["dtype"]], known["shape"]
    if not known["nbytes"]:
        return torch.empty(shape, dtype=dtype)
    count = math.prod(shape)
    tensor = torch.frombuffer(whole, dtype=dtype, count=count, offset=known["offset"])
    data = tensor.view(torch.uint8).numpy().data
    if verify and zlib.crc32(data) != known["crc32"]:
        raise ValueError(
            f"{path}: {name!r} is damaged, its checksum is another. Copy it again."
        )
    return tensor.view(shape)


def _text(header: dict[str, Any]) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode()


def _up(offset: int) -> int:
    return -(-offset // _PAGE) * _PAGE


def _umask() -> int:
    """Return the process's mask; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
