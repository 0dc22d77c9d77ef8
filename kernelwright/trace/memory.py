"""A launch's tensors in guarded memory, so that no wild access hits a neighbour."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

import numpy as np
import torch

# Between two buffers, where nobody's data is: an index that is off by up to half of it
# is blamed on the right buffer. Never touched, so it costs addresses and no memory.
GUARD = 16 << 20
# What a GPU's allocator gives at least.
ALIGNMENT = 256


@dataclass(frozen=True)
class Buffer:
    """One parameter's memory.

    Args:
        position: of the parameter, from 0; the next rank's follow.
        name: of the parameter.
        low, high: addresses of its copy.
        element: bytes of the parameter's own element type.
        unwritten: nobody has written it before the launch.
        shape: of the tensor.
    """

    position: int
    name: str
    low: int
    high: int
    element: int
    unwritten: bool
    shape: tuple[int, ...] = ()


class GuardedMemory:
    """Copies of tensors, each between guards and aligned as its storage is on a GPU.

    Tensors that overlap share a copy, as they share memory.
    """

    def __init__(
        self,
        tensors: Sequence[tuple[int, str, int, bool, torch.Tensor]],
    ) -> None:
        self._originals = [t for *_, t in tensors]  # alive until what is new goes back
        spans = sorted(
            (t.data_ptr(), t.data_ptr() + t.numel() * t.element_size())
            for *_, t in tensors
            if t.numel()
        )
        merged: list[list[int]] = []
        for low, high in spans:
            if merged and low < merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], high)
            else:
                merged.append([low, high])
        skew = {t.data_ptr(): _skew(t) for *_, t in tensors}
        size = GUARD + sum(high - low + GUARD + 2 * ALIGNMENT for low, high in merged)
        # Mapped, not allocated: a grader's malloc fills what it hands out, and so would
        # touch the guards of each traced launch.
        mapped = mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        self._arena = np.frombuffer(mapped, np.uint8)
        at = self._arena.ctypes.data + GUARD
        self._moves: list[tuple[int, int, int]] = []
        for low, high in merged:
            place = -(-at // ALIGNMENT) * ALIGNMENT + skew[low]
            ctypes.memmove(place, low, high - low)
            self._moves.append((low, high, place))
            at = place + high - low + GUARD
        self.buffers = [
            Buffer(
                position,
                name,
                self.moved(t.data_ptr()),
                self.moved(t.data_ptr()) + t.numel() * t.element_size(),
                element,
                unwritten,
                tuple(t.shape),
            )
            for position, name, element, unwritten, t in tensors
        ]
        self.regions = [
            (
                place,
                place + high - low,
                any(b.unwritten and place <= b.low < place + high - low
                    for b in self.buffers),
            )
            for low, high, place in self._moves
        ]  # fmt: skip

    def moved(self, address: int) -> int:
        """Return where an address went; an empty tensor's stays where it is."""
        for low, high, place in self._moves:
            if low <= address < high:
                return place + address - low
        return address

    def copy_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor's copy, with its shape and strides."""
        size = tensor.element_size()
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        length = size * (1 + sum((n - 1) * step for n, step in steps))
        at = self.moved(tensor.data_ptr()) - self._arena.ctypes.data
        flat = torch.from_numpy(self._arena)[at : at + length].view(tensor.dtype)
        return flat.as_strided(tensor.shape, tensor.stride())

    def copy_back(self) -> None:
        """Give the tensors what the kernel wrote."""
        for low, high, place in self._moves:
            ctypes.memmove(low, place, high - low)


def _skew(tensor: torch.Tensor) -> int:
    """Return how far a tensor lies behind an aligned address, on a GPU."""
    begin = tensor.untyped_storage().data_ptr()
    return (tensor.data_ptr() - begin) % ALIGNMENT
