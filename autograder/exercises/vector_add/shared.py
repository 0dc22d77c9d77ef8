"""What the exercises of chapter 1 share: cases, launches, timing, the sum.

One IEEE addition errs by at most eps/2 of its result (eps = 2^-23 for fp32). A factor
of 1 is twice what a right answer needs, and 2^13 times less than what an answer
computed in fp16 would show.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from autograder.drawing import draw_pair, tensor, vector_case
from autograder.exercise import (
    Arguments,
    Case,
    Launch,
    Output,
    Outputs,
    Problem,
    Speed,
)

THREADS = 256
TIMED = 2**26  # floats: 268 MB an array, over four times the L2 of any GPU of today


def timed(bands: dict[str, float]) -> Speed:
    """Return the speed gate of a kernel that moves 12 bytes an element."""
    return Speed(
        peer="copy bandwidth",
        case=vector_case(TIMED),
        bytes_moved=lambda case: 12 * case.sizes["n"],  # x and y read, out written
        bands=bands,
    )


# A prime of several blocks first: there every known mistake shows a face of its own.
SIZES = (1009, 257, 255, 33, 31, 1, 0)
CASES = (
    *(vector_case(n) for n in SIZES),
    vector_case(1024, "zeros"),
    vector_case(1000, "large"),
    vector_case(515, "special"),
)


def covering_launch(elements: int) -> Launch:
    """Return whole blocks of 256 threads that cover the elements; one at least."""
    return Launch((max(1, -(-elements // THREADS)),), (THREADS,))


def add_problem(launch: Callable[[int], Launch] | None) -> Callable[..., Problem]:
    """Return what draws x and y: for a function, or for a kernel so launched."""

    def problem(case: Case, generator: torch.Generator) -> Problem:
        x, y = draw_pair(case, generator)
        n = x.numel()
        if launch is None:
            shape = (case.sizes["rows"], -1) if "rows" in case.sizes else (n,)
            x, y = x.view(shape), y.view(shape)
            return Problem({"x": x, "y": y}, {"out": Output(x.shape, torch.float32)})
        output = {"out": Output((n,), torch.float32)}
        return Problem({"x": x, "y": y, "out": None, "n": n}, output, launch(n))

    return problem


def add_reference(arguments: Arguments) -> Outputs:
    """Return the sum in float64."""
    return {"out": tensor(arguments, "x").double() + tensor(arguments, "y").double()}
