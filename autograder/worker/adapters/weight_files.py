"""Files around a learner's ``open_weights``: whole ones, and such as it must refuse.

They are written here, in the worker's own folder, by the format that the exercise
states; what the answer opens is looked at before anything of it is read.
"""

from __future__ import annotations

import resource
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from autograder.worker.entry import WrongReturn

_HEADER = struct.Struct("<8sIIQQQ")
_MAGIC, _VERSION, _PAGE = b"KWINT4\r\n", 1, 4096
# No other file of a process is called so.
_NAME = "weights_to_open.kw4"
_LARGE = 1 << 20
"""Of a smaller file the pages around what was touched are a large part."""
_AT_A_FAULT = 1 << 16
"""Bytes that the system brings at once, where somebody looks at a mapped file."""

Answer = Callable[[str], Any]


def adapt_weights(
    answer: Answer, words: torch.Tensor, scales: torch.Tensor, group_size: int
) -> Any:
    """Have a file opened, and others refused; return what the first one holds."""
    whole = _written(words.cpu(), scales.cpu(), group_size)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _NAME
        path.write_bytes(whole)
        read = _bytes_read()
        found = answer(str(path))
        if not (
            isinstance(found, tuple | list)
            and len(found) == 2
            and all(isinstance(part, torch.Tensor) for part in found)
        ):
            got = type(found).__name__
            raise WrongReturn(
                f"open_weights returned {got}; wanted two tensors, words and scales."
            )
        for name, part in zip(("words", "scales"), found, strict=True):
            _check_map(name, part)
        _check_untouched(len(whole), _bytes_read() - read)
        for what, wrong in _damaged(whole):
            path.unlink()  # the first one stays mapped
            path.write_bytes(wrong)
            _check_refusal(answer, str(path), what)
        if len(whole) >= _LARGE:
            path.unlink()
            _check_faults(answer, path)
        # A file is the CPU's; what is compared lies where the inputs do.
        return tuple(part.to(words.device, copy=True) for part in found)


def _written(words: torch.Tensor, scales: torch.Tensor, group_size: int) -> bytes:
    """Return the bytes of a file."""
    rows, columns = words.shape[0], 8 * words.shape[1]
    body = words.contiguous().numpy().tobytes()
    body += bytes(-len(body) % _PAGE) + scales.contiguous().numpy().tobytes()
    sizes = group_size, rows, columns, _PAGE + len(body)
    return _HEADER.pack(_MAGIC, _VERSION, *sizes).ljust(_PAGE, b"\0") + body


def _damaged(whole: bytes) -> Iterator[tuple[str, bytes]]:
    """Give what a file may be instead, in words, and its bytes."""
    _, _, size, rows, columns, length = _HEADER.unpack_from(whole)
    body = whole[_HEADER.size :]

    def says(version: int, *sizes: int) -> bytes:
        return _HEADER.pack(_MAGIC, version, *sizes) + body

    yield "an empty file", b""
    yield "a file that ends within the header", whole[:20]
    yield "a file with another magic", b"GGUF\3\0\0\0" + whole[8:]
    yield "a file whose magic differs in its last byte", _MAGIC[:-1] + b"\r" + whole[8:]
    yield "a file of version 2", says(2, size, rows, columns, length)
    yield "a file of version 0", says(0, size, rows, columns, length)
    yield "a file cut short by one byte", whole[:-1]
    yield "a file with a byte added", whole + b"\0"
    yield "a file with groups of 0 columns", says(_VERSION, 0, rows, columns, length)
    if rows * columns == 0:
        return
    yield "a file cut short behind the header", whole[:_PAGE]
    more = says(_VERSION, size, rows + 1, columns, length)
    yield "a file whose header says a row more than it holds", more
    less = says(_VERSION, size, rows - 1, columns, length)
    yield "a file whose header says a row less than it holds", less


def _check_refusal(answer: Answer, path: str, what: str) -> None:
    try:
        answer(path)
    except ValueError as error:
        if path not in str(error):
            raise WrongReturn(
                f"{what} is refused without its name: {str(error)[:200]!r}. Wanted: "
                "the header and the sizes in it are held to the file's length before "
                "they are used, and the path stands in the message."
            ) from error
        return
    except Exception as error:
        raise WrongReturn(
            f"{what} ends in {type(error).__name__}: {str(error)[:200]}; wanted a "
            "ValueError that names the file."
        ) from error
    raise WrongReturn(f"{what} is opened; wanted a ValueError that names the file.")


def _check_map(name: str, part: torch.Tensor) -> None:
    """Ask for a private map of the file behind a tensor, where the system says."""
    if not part.numel() or not _tables().exists():
        return
    address = part.data_ptr()
    for line in _tables().read_text().splitlines():
        span, kind, *rest = line.split(maxsplit=5)
        first, last = (int(end, 16) for end in span.split("-"))
        if not first <= address < last:
            continue
        if len(rest) < 4 or _NAME not in rest[3]:
            break
        if "w" not in kind:
            raise WrongReturn(
                f"{name} lies in memory that may only be read, and writing to the "
                "tensor would end the process. Map with access=mmap.ACCESS_COPY."
            )
        if "p" not in kind:
            raise WrongReturn(
                f"what is written to {name} would be written to the file. Map with "
                "access=mmap.ACCESS_COPY."
            )
        return
    raise WrongReturn(
        f"{name} is a copy in memory of its own; wanted a tensor that lies in the "
        "file's map: torch.frombuffer(whole, dtype=..., count=..., offset=...)."
    )


# What a system may map at the first touch, of which a header is a small part.
_FOLIO = (2 << 20) + (1 << 19)


def _check_untouched(size: int, read: int) -> None:
    """Ask that opening has left most of a file's pages unread."""
    if size < _LARGE or not _tables().exists():
        return
    mapped = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, value = line.partition(":")
        if "-" in name.split(" ")[0]:  # the first line of a map
            mapped = _NAME in line
        elif mapped and name == "Rss":
            read += 1024 * int(value.split()[0])
    if read > max(size // 4, _FOLIO):
        raise WrongReturn(
            f"opening a file of {size:,} bytes read {read:,} of them; wanted the "
            "header alone: the rest is read when somebody looks at it."
        )


def _check_faults(answer: Answer, path: Path) -> None:
    """Ask that no other map was looked through either, and closed again.

    Such a map leaves no trace but page faults, and of these a large file has many. Most
    of this one are zeros that no disk holds.
    """
    rows, columns, size = 1 << 10, 1 << 17, 128
    length = _PAGE + rows * columns // 2 + 2 * rows * (columns // size)
    with path.open("wb") as file:
        file.write(_HEADER.pack(_MAGIC, _VERSION, size, rows, columns, length))
        file.truncate(length)
    before = _faults()
    answer(str(path))
    faults = _faults() - before
    if faults > length // _AT_A_FAULT // 4:
        raise WrongReturn(
            f"opening a file of {length:,} bytes took {faults:,} page faults, as if "
            "all of it were looked at; wanted the header alone."
        )


def _faults() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_minflt + used.ru_majflt


def _tables() -> Path:
    return Path("/proc/self/maps")


def _bytes_read() -> int:
    """Return how many bytes this process has read from files so far."""
    path = Path("/proc/self/io")
    if not path.exists():
        return 0
    return int(path.read_text().split("rchar:")[1].split()[0])
