"""The outputs that a learner's function returned: told by its process, not believed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from autograder.exercise import Problem
from autograder.judge.speed.samples import Made
from autograder.worker import device_memory
from autograder.worker.tensors import DTYPES, dtype_name

_MOST_SEGMENTS = 1024


class WrongOutputs(Exception):
    """What was returned is not what the exercise asks for."""


@dataclass
class Segments:
    """Allocations of the learner's process that are mapped here, in told order.

    Args:
        open_handle: maps a handle and returns its address.
        extent: returns base and size of the allocation at an address.
    """

    open_handle: Callable[[bytes], int] = device_memory.open_handle
    extent: Callable[[int], tuple[int, int]] = device_memory.extent
    mapped: list[tuple[int, int]] = field(default_factory=list)

    def add(self, handles: list[str]) -> None:
        """Map allocations that were not told of before."""
        if len(self.mapped) + len(handles) > _MOST_SEGMENTS:
            raise WrongOutputs(
                "your function takes new memory from the GPU at every call instead "
                "of letting torch reuse it"
            )
        for text in handles:
            address = self.open_handle(bytes.fromhex(text))
            self.mapped.append(self.extent(address))

    def address(self, segment: int, offset: int, size: int) -> int:
        """Return the address of some bytes of a segment, if they lie in it."""
        base, length = self.mapped[segment]
        if offset + size > length:
            raise ValueError("outside of the segment")
        return base + offset


def find_outputs(
    told: dict[str, Any], problem: Problem, calls: int, segments: Segments
) -> list[Made]:
    """Locate each output of each call in this process's address space.

    Args:
        told: ``segments``, new handles in hexadecimal; ``form``, dtype, shape and
            strides of each output; ``rows``, for each call a pair of segment and
            offset in bytes for each output.
        problem: says what the outputs must be.
        calls: how many calls there were.
        segments: what is mapped; the new ones are added.

    Raises:
        WrongOutputs: a message for the learner.
    """
    try:
        segments.add(told["segments"])
        form, rows = told["form"], told["rows"]
        if len(form) != len(problem.outputs):
            raise WrongOutputs(
                f"your function returned {len(form)} values at the timed size; "
                f"wanted {len(problem.outputs)}"
            )
        if len(rows) != calls:
            raise ValueError("a row a call")
        return [
            _locate(
                name, form[number], [row[number] for row in rows], problem, segments
            )
            for number, name in enumerate(problem.outputs)
        ]
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise WrongOutputs(
            "the process that ran your function did not say where its results are"
        ) from error


def _locate(
    name: str, form: Any, spots: list[Any], problem: Problem, segments: Segments
) -> Made:
    """Check one output of all calls against what it must be and what is mapped."""
    wanted = problem.outputs[name]
    shape, strides = _numbers(form["shape"]), _numbers(form["strides"])
    dtype = DTYPES.get(str(form["dtype"]))
    if shape != tuple(wanted.shape) or dtype != wanted.dtype:
        raise WrongOutputs(
            f"{name} is {str(form['dtype'])[:20]} of shape {list(shape)[:8]} at the "
            f"timed size; wanted {dtype_name(wanted.dtype)} of shape "
            f"{list(wanted.shape)}"
        )
    if len(strides) != len(shape):
        raise ValueError("a stride a dimension")
    steps = zip(shape, strides, strict=True)
    span = 1 + sum((length - 1) * stride for length, stride in steps)
    item = wanted.dtype.itemsize
    if not math.prod(shape):
        return Made(name, wanted.dtype, shape, strides, (0,) * len(spots))
    addresses = []
    for spot in spots:
        segment, offset = _numbers(spot)
        if offset % item:
            raise ValueError("not aligned")
        addresses.append(segments.address(segment, offset, span * item))
    return Made(name, wanted.dtype, shape, strides, tuple(addresses))


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(_number(item) for item in value)


def _number(value: Any) -> int:
    """Read a number that must be a whole one and not negative."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(value)
    return value
