"""From a problem to the places of its tensors, and to what else is sent of it."""

from __future__ import annotations

import torch

from autograder.exercise import Problem
from autograder.worker.places import Layout, Place, contiguous_strides

_ALIGNMENT = 512


def lay_out(problem: Problem, *, outputs: bool) -> Layout:
    """Lay out a problem's tensors one after the other.

    Args:
        problem: gives names, shapes and dtypes.
        outputs: whether the outputs have places too, as for a kernel.
    """
    places: list[Place] = []
    end = 0

    def add(name: str, like: torch.Tensor | None, output: bool) -> None:
        nonlocal end
        if like is not None:
            shape, strides, dtype = like.shape, like.stride(), like.dtype
        else:
            wanted = problem.outputs[name]
            shape, dtype = torch.Size(wanted.shape), wanted.dtype
            strides = contiguous_strides(wanted.shape)
        place = Place(name, end, dtype, tuple(shape), tuple(strides), output)
        places.append(place)
        end += -(-place.size // _ALIGNMENT) * _ALIGNMENT

    for name, value in problem.arguments.items():
        if isinstance(value, torch.Tensor):
            add(name, value, False)
        elif value is None and outputs:
            add(name, None, True)
    return Layout(tuple(places), tuple(problem.arguments), max(end, _ALIGNMENT))


def scalars_of(problem: Problem) -> dict[str, int | str]:
    """Return a problem's scalars: integers as they are, floats in hexadecimal."""
    return {
        name: value.hex() if isinstance(value, float) else value
        for name, value in problem.arguments.items()
        if isinstance(value, int | float)
    }
