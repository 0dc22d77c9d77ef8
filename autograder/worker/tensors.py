"""Tensors as plain bytes, with guard zones around those that a kernel may write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

# The dtypes that cross the boundary, by the name that the header carries.
DTYPES: dict[str, torch.dtype] = {
    str(d).removeprefix("torch."): d
    for d in (
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    )
}
# Bytes before and behind each tensor: a block of 1,024 threads that each write one
# vector too far stays inside. A multiple of the alignment of any allocator.
GUARD = 1 << 16
_PATTERN = 0xA7


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name that stands for ``dtype`` in a header."""
    return str(dtype).removeprefix("torch.")


def to_bytes(tensor: torch.Tensor) -> bytes:
    """Return the elements of a CPU tensor in order, as raw bytes."""
    flat = tensor.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


def from_bytes(
    data: bytes | bytearray, dtype: torch.dtype, shape: tuple[int, ...]
) -> torch.Tensor:
    """Return a CPU tensor of its own memory that holds ``data``."""
    if not len(data):
        return torch.empty(shape, dtype=dtype)
    raw = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)


def span(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the stretch of memory that a strided tensor covers, and its length."""
    if tensor.numel() == 0:
        return tensor.reshape(-1), 0
    length = 1 + sum(
        (n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return tensor.as_strided((length,), (1,)), length


@dataclass
class Guarded:
    """A tensor inside a larger buffer whose ends hold a known pattern."""

    name: str
    tensor: torch.Tensor
    buffer: torch.Tensor
    inner: int

    @staticmethod
    def place(spec: dict[str, Any], data: bytes | bytearray, device: str) -> Guarded:
        """Lay the bytes of one tensor between two guard zones on ``device``."""
        dtype = DTYPES[spec["dtype"]]
        size = len(data)
        # The tail is padded so that the rear guard starts right behind the data.
        host = torch.full((GUARD + size + GUARD,), _PATTERN, dtype=torch.uint8)
        if size:
            host[GUARD : GUARD + size] = torch.frombuffer(data, dtype=torch.uint8)
        buffer = host.to(device)
        inner = buffer[GUARD : GUARD + size]
        flat = inner.view(dtype)
        tensor = flat.as_strided(tuple(spec["shape"]), tuple(spec["strides"]))
        return Guarded(spec["name"], tensor, buffer, size)

    def trespass(self) -> list[str]:
        """Name the sides on which something wrote outside of the tensor."""
        before = self.buffer[:GUARD]
        behind = self.buffer[GUARD + self.inner :]
        sides = {"before": before, "behind": behind}
        return [s for s, zone in sides.items() if bool((zone != _PATTERN).any())]

    def first_outside(self) -> int:
        """Return the index, nearest to the tensor, at which something was written."""
        size = self.tensor.element_size()
        behind = (self.buffer[GUARD + self.inner :] != _PATTERN).nonzero()
        if len(behind):
            return (self.inner + int(behind[0])) // size
        before = (self.buffer[:GUARD] != _PATTERN).nonzero()
        return (int(before[-1]) - GUARD) // size if len(before) else 0
