"""Square every element: one thread an element, and a guard.

One multiplication errs by at most eps/2 of its result; a factor of 1 is twice that.
"""

from __future__ import annotations

import torch

from autograder.drawing import draw_vector, tensor, vector_case
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.ideals import moves

_THREADS = 256


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    return Problem(
        {"x": draw_vector(case, generator), "out": None, "n": n},
        {"out": Output((n,), torch.float32)},
        Launch((max(1, -(-n // _THREADS)),), (_THREADS,)),
    )


def _reference(arguments: Arguments) -> Outputs:
    return {"out": tensor(arguments, "x").double() ** 2}


NEW_STEM = Exercise(
    id="new_stem",
    title="Square",
    kind="core",
    points=10,
    language="cuda",
    entry="kernel",
    name="new_stem",
    source="solutions/new_stem/naive.cu",
    goal="Square every element: `out[i] = x[i] * x[i]`.",
    requirements=(
        "The launch is whole blocks of 256 threads: often more threads than `n`.",
        "No thread reads or writes past the last element, `n` = 0 included.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        *(vector_case(n) for n in (1009, 257, 255, 1, 0)),
        vector_case(515, "special"),
    ),
    tolerance=Tolerance(factor=1.0),
    hints=(
        "Which element is this thread's own?",
        "Block `b` begins at element `b * blockDim.x`. Has this thread an element?",
        "`int i = blockIdx.x * blockDim.x + threadIdx.x;` then `if (i < n) { ... }`",
    ),
    onward="To write: what to try next.",
    counts=moves(),
)
