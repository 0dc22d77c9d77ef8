"""Add one: what a single thread runs."""

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


def exact_launch(n: int) -> Launch:
    """Return a launch of exactly n threads: the largest block up to 64 that fits."""
    threads = max(d for d in range(1, min(n, 64) + 1) if n % d == 0)
    return Launch((n // threads,), (threads,))


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    x = draw_vector(case, generator)
    return Problem(
        {"x": x, "out": None},
        {"out": Output((n,), torch.float32)},
        exact_launch(n),
    )


def _reference(arguments: Arguments) -> Outputs:
    return {"out": tensor(arguments, "x").double() + 1}


ADD_ONE = Exercise(
    id="add_one",
    title="Add one",
    kind="warm-up",
    points=5,
    language="cuda",
    entry="kernel",
    name="add_one",
    source="solutions/vector_add/add_one.cu",
    goal="Write the body that one thread runs: `out[i] = x[i] + 1` for its own `i`.",
    requirements=(
        "There are exactly as many threads as elements, in one or more blocks.",
        "Each thread writes one element of `out`, and each element is written.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        vector_case(640),
        vector_case(32),
        vector_case(31),
        vector_case(1),
        vector_case(257),
        vector_case(1000, "special"),
    ),
    tolerance=Tolerance(factor=1.0),
    hints=(
        "Every thread runs the same text. What differs between two threads of a "
        "block is `threadIdx.x`, and between two blocks `blockIdx.x`.",
        "A block holds `blockDim.x` threads, so block `b` begins at element `b * "
        "blockDim.x`. The thread's own element is `threadIdx.x` further on.",
        "First line: `int i = blockIdx.x * blockDim.x + threadIdx.x;` Second line: "
        "assign to `out[i]`.",
    ),
    onward="Launch it with one thread too few, and look at the last element.",
    counts=moves(),
)
