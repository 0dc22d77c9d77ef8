"""Memory as a kernel sees it: shared, by pointer, and by TMA descriptor."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch

from kernelwright.errors import KernelFault
from kernelwright.gluon.number import Number


def one_of(length: int, at: Any) -> int:
    """Return an index as an int; none lies before the first.

    Raises:
        KernelFault: it is outside.
    """
    if not 0 <= int(at) < length:
        raise KernelFault(
            f"index({int(at)}) is outside of the {length} that were allocated; "
            "wanted i % stages, or more stages",
            kind="memory",
        )
    return int(at)


class Block:
    """Shared memory, or a part of it."""

    def __init__(self, data: torch.Tensor) -> None:
        self.data, self.shape, self.dtype = data, list(data.shape), data.dtype

    def index(self, at: Any) -> Block:
        """Take one part of the first axis."""
        return Block(self.data[one_of(self.shape[0], at)])

    def slice(self, start: int, length: int, dim: int = 0) -> Block:
        """Take some of an axis."""
        return Block(self.data.narrow(dim, start, length))

    def reshape(self, shape: Sequence[int]) -> Block:
        """Count the same memory in another shape."""
        return Block(self.data.view(*shape))

    def permute(self, order: Sequence[int]) -> Block:
        """Turn axes."""
        return Block(self.data.permute(*order))

    def load(self, _layout: Any) -> Any:
        """Copy to registers."""
        return self.data.clone().as_subclass(Number)

    def store(self, value: torch.Tensor) -> None:
        """Copy from registers."""
        self.data.copy_(value)


class Pointer:
    """A place in a flat tensor, or a place for each of a tensor of offsets."""

    def __init__(self, data: torch.Tensor, at: Any = 0) -> None:
        self.data, self.at = data, at

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.data, self.at + more)


class Descriptor:
    """A TMA descriptor: what is outside the tensor is read as 0 and not written.

    Args:
        data: any shape and strides.
        block: the shape of a copy, of as many axes.
    """

    layout = None

    def __init__(self, data: torch.Tensor, block: Sequence[int]) -> None:
        self.data, self.dtype = data, data.dtype
        size = torch.Size(block).numel() * data.element_size()
        self.block_type = types.SimpleNamespace(nbytes=size, shape=list(block))

    def inside(self, at: Sequence[Any], block: Block) -> list[torch.Tensor]:
        """Return what a copy is of: the part inside of the tensor, and of the block."""
        wanted = self.block_type.shape
        if block.shape != wanted:
            raise KernelFault(
                f"a TMA copy of {wanted} got {block.shape} of shared memory; "
                "wanted the shape of the descriptor's block",
                kind="memory",
            )
        ours, theirs = self.data, block.data
        for axis, first in enumerate(map(int, at)):
            low = min(max(first, 0), ours.shape[axis])
            many = max(min(first + wanted[axis], ours.shape[axis]) - low, 0)
            ours = ours.narrow(axis, low, many)
            theirs = theirs.narrow(axis, low - first if many else 0, many)
        return [ours, theirs]
