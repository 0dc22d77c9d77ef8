"""The detective: right for every size that the threads divide.

The bound is that of saxpy, with the offset in the place of y.
"""

from __future__ import annotations

import torch

from autograder.drawing import draw_vector, rounded, tensor, vector_case
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.exercises.vector_add.saxpy_grid_stride import (
    GRID_STRIDE,
    LAUNCHED,
    WHOLE,
    fixed_launch,
)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    x = draw_vector(case, generator)
    # As for saxpy: in these ranges the bound holds for the mistakes as well.
    scale = 0.6 + 0.3 * float(torch.rand((), generator=generator))
    offset = -0.5 - 0.08 * float(torch.rand((), generator=generator))
    return Problem(
        {"x": x, "scale": scale, "offset": offset, "out": None, "n": n},
        {"out": Output((n,), torch.float32)},
        fixed_launch(case),
    )


def _reference(arguments: Arguments) -> Outputs:
    x = tensor(arguments, "x").double()
    return {"out": rounded(arguments, "scale") * x + rounded(arguments, "offset")}


def _magnitude(arguments: Arguments) -> Outputs:
    x = tensor(arguments, "x").double()
    product = (rounded(arguments, "scale") * x).abs()
    return {"out": product + abs(rounded(arguments, "offset"))}


SCALE_OFFSET = Exercise(
    id="scale_offset",
    title="The kernel that passed every test",
    kind="detective",
    points=15,
    language="cuda",
    entry="kernel",
    name="scale_offset",
    source="autograder/exercises/vector_add/scale_offset.cu",
    goal="Mend `out[i] = scale * x[i] + offset`, which is right for 96 and 960 "
    "elements and wrong for 1,000.",
    requirements=(
        "Right for every `n`, with any number of threads, fewer elements than "
        "threads included.",
        "At every moment neighbouring threads work on neighbouring elements.",
        "No thread writes past the last element.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(*LAUNCHED, vector_case(96), vector_case(960)),
    tolerance=Tolerance(factor=1.0, scale=_magnitude),
    hints=(
        "The sizes that pass are multiples of 96, the number of threads. Draw the "
        "launch for `n` = 100 and look for elements without an owner.",
        "Integer division rounds down: with `n` = 100 and 96 threads each chunk is "
        "1 element, so 96 are covered. What covers the other 4?",
        "Rounding the chunk up and stopping every thread at `n` mends the values. "
        "Drop the chunks: the grid-stride loop from saxpy gives every element one "
        "owner, and a warp's 32 loads stand side by side.",
    ),
    onward="Trace it with chunks that are rounded up: why does a warp mind? Chapter 2.",
    counts=GRID_STRIDE,
    counted=WHOLE,
)
