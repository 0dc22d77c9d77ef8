"""A file of packed weights that opens at once: a header, and the rest mapped.

``files.py`` has more of it: several tensors by name, checksums, writing in one step.
"""

from __future__ import annotations

import mmap
import os
import struct

import torch

# fmt: off
# [exercise:mmap_weights]
# Magic, version, group size, rows, columns, the file's length.
HEADER = struct.Struct("<8sIIQQQ")
MAGIC, VERSION, PAGE = b"KWINT4\r\n", 1, 4096


def scales_at(rows, columns):
    """Return where the scales begin: the first page behind the words."""
    return -(-(PAGE + rows * columns // 2) // PAGE) * PAGE


def save_weights(path, words, scales, group_size):
    """Write words (rows, columns / 8), int32, and scales, fp16."""
    rows, columns = words.shape[0], 8 * words.shape[1]
    begin = scales_at(rows, columns)
    length = begin + 2 * scales.numel()
    sizes = group_size, rows, columns, length
    with open(path, "wb") as file:
        file.write(HEADER.pack(MAGIC, VERSION, *sizes))
        file.seek(PAGE)
        file.write(words.numpy().tobytes())
        file.seek(begin)
        file.write(scales.numpy().tobytes())
        file.truncate(length)


def open_weights(path):
    """Map what save_weights wrote; return words and scales, unread."""
    # [hole]
    with open(path, "rb") as file:
        start = file.read(HEADER.size)
        if len(start) < HEADER.size or not start.startswith(MAGIC):
            raise ValueError(
                f"{path} begins with {start[:8]}; wanted {MAGIC}, which "
                "save_weights writes."
            )
        _, version, size, rows, columns, length = HEADER.unpack(start)
        if version != VERSION:
            raise ValueError(
                f"{path} has version {version}; wanted {VERSION}."
            )
        found = os.fstat(file.fileno()).st_size
        if found != length:
            raise ValueError(
                f"{path} has {found:,} bytes; its header says {length:,}. "
                "Copy it again."
            )
        begin = scales_at(rows, columns)
        groups = -(-columns // max(size, 1))
        if size == 0 or begin + 2 * rows * groups != length:
            raise ValueError(
                f"{path}: {rows} x {columns} in groups of {size} do not "
                f"make {length:,} bytes. Its header is damaged."
            )
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def tensor(dtype, rows, columns, offset):
        if rows * columns == 0:
            return torch.empty(rows, columns, dtype=dtype)
        flat = torch.frombuffer(
            whole, dtype=dtype, count=rows * columns, offset=offset
        )
        return flat.view(rows, columns)

    words = tensor(torch.int32, rows, columns // 8, PAGE)
    return words, tensor(torch.float16, rows, groups, begin)
    # [/hole]
# [/exercise]
