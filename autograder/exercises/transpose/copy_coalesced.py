"""A copy with four elements a thread: which four, so that a warp's lie side by side."""

from __future__ import annotations

import torch

from autograder.drawing import draw_vector, tensor, vector_case
from autograder.exercise import Case, Exercise, Launch, Output, Problem
from autograder.exercises.transpose.shared import EXACT, SHARES, THREADS
from autograder.ideals import moves


def _problem(case: Case, generator: torch.Generator) -> Problem:
    x = draw_vector(case, generator)
    n = x.numel()
    return Problem(
        {"x": x, "out": None, "n": n},
        {"out": Output((n,), torch.float32)},
        Launch((max(1, -(-n // (4 * THREADS))),), (THREADS,)),
    )


COPY_COALESCED = Exercise(
    id="copy_coalesced",
    title="Four elements a thread, coalesced",
    kind="warm-up",
    points=10,
    language="cuda",
    entry="kernel",
    name="copy_coalesced",
    source="solutions/transpose/coalesced_copy.cu",
    goal="Copy `n` floats with four elements a thread, so that each request of a warp "
    "touches four sectors.",
    requirements=(
        "Blocks of 256 threads, one for each 1,024 elements; the last may have fewer.",
        "Each element is loaded once and stored once.",
        "Loads and stores fill the sectors that they touch: four for 32 floats.",
    ),
    problem=_problem,
    reference=lambda arguments: {"out": tensor(arguments, "x").double()},
    cases=(
        vector_case(4096),
        vector_case(3001),
        *(vector_case(n) for n in (1025, 1024, 255, 33, 1, 0)),
        vector_case(2500, "special"),
    ),
    tolerance=EXACT,
    hints=(
        "At one moment all 32 lanes of a warp run the same round `k`. Which 32 "
        "elements should they hold, so that these lie side by side?",
        "Neighbouring threads take neighbouring elements, as in chapter 1. Then the"
        " whole block moves on: how many elements has it just taken?",
        "`int i = block + k * blockDim.x + threadIdx.x;` then, if `i < n`, copy one.",
    ),
    onward="Make it four neighbours a thread, block + 4 * threadIdx.x + k, and trace "
    "it: the values stay right.",
    counts=moves(),
    shares=SHARES,
)
