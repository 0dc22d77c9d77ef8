"""Where the arguments of every timed call lie in the memory that is shared.

One allocation holds all sets of inputs (and, for a kernel, its outputs), one set a
call and all sets alike, so that one handle and one list of places describe them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from autograder.worker.tensors import DTYPES, dtype_name


@dataclass(frozen=True)
class Place:
    """One tensor of a set.

    Args:
        name: the argument's name.
        offset: bytes from the beginning of its set.
        dtype, shape, strides: as the problem has them.
        output: whether the answer writes it.
    """

    name: str
    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    output: bool

    @property
    def elements(self) -> int:
        """Elements that the tensor spans in memory, gaps between them included."""
        if 0 in self.shape:
            return 0
        steps = zip(self.shape, self.strides, strict=True)
        return 1 + sum((length - 1) * stride for length, stride in steps)

    @property
    def size(self) -> int:
        """Bytes that the tensor spans."""
        return self.elements * self.dtype.itemsize

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {
            "name": self.name,
            "offset": self.offset,
            "dtype": dtype_name(self.dtype),
            "shape": list(self.shape),
            "strides": list(self.strides),
            "output": self.output,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Place:
        """Read what ``to_json`` wrote."""
        return Place(
            data["name"],
            data["offset"],
            DTYPES[data["dtype"]],
            tuple(data["shape"]),
            tuple(data["strides"]),
            data["output"],
        )


@dataclass(frozen=True)
class Layout:
    """One set of tensors, laid out.

    Args:
        places: the tensors.
        order: names of all arguments in order, scalars among them.
        stride: bytes from one set to the next.
    """

    places: tuple[Place, ...]
    order: tuple[str, ...]
    stride: int

    def view(self, memory: torch.Tensor, number: int, place: Place) -> torch.Tensor:
        """View one tensor of one set in the shared memory."""
        begin = number * self.stride + place.offset
        flat = memory[begin : begin + place.size].view(place.dtype)
        return flat.as_strided(place.shape, place.strides)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {
            "places": [place.to_json() for place in self.places],
            "order": list(self.order),
            "stride": self.stride,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Layout:
        """Read what ``to_json`` wrote."""
        return Layout(
            tuple(Place.from_json(place) for place in data["places"]),
            tuple(data["order"]),
            data["stride"],
        )


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a tensor whose elements lie in order."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(1, shape[axis + 1])
    return tuple(strides)


def read_scalar(value: int | str) -> int | float:
    """Read what the supervisor sent."""
    return float.fromhex(value) if isinstance(value, str) else value
