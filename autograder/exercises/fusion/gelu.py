"""The warm-up: GELU in one kernel, one thread an element."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)
from autograder.exercises.fusion.shared import (
    GELU_FACTOR,
    IN_DOUBLE,
    TIMED,
    covering_launch,
    draw_values,
    exact_gelu,
    length_case,
    timed,
)
from autograder.ideals import moves


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    return Problem(
        {"x": draw_values(case, generator, n), "out": None, "n": n},
        {"out": Output((n,), torch.float32)},
        covering_launch(n),
    )


def _reference(arguments: Arguments) -> Outputs:
    return {"out": exact_gelu(tensor(arguments, "x"))}


def _magnitude(arguments: Arguments) -> Outputs:
    return {"out": tensor(arguments, "x").double().abs().nan_to_num(0.0)}


GELU = Exercise(
    id="gelu",
    title="GELU in one kernel",
    kind="warm-up",
    points=10,
    language="cuda",
    entry="kernel",
    name="gelu",
    source="solutions/fusion/gelu.cu",
    goal="Write the whole chain of GELU as one kernel: "
    "`out[i] = 0.5 * x[i] * (1 + erf(x[i] / sqrt(2)))`.",
    requirements=(
        "The launch has a thread for each element, in whole blocks of 256: the last "
        "block has threads without one.",
        "`x` is read once and `out` written once; what is between stays in registers.",
        "In `float`: `erff`, and numbers that end in `f`.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        *(length_case(n) for n in (1009, 257, 255, 31, 1, 0)),
        length_case(1000, "wide"),
        length_case(300, "large"),
        length_case(515, "special"),
    ),
    tolerance=Tolerance(GELU_FACTOR, scale=_magnitude),
    hints=(
        "Eager PyTorch runs five kernels: divide, erf, add 1, times x, times 0.5. "
        "Each is one operation on a variable of yours.",
        "`float v = x[i];` once, inside of the guard `i < n`; then all is made of "
        "`v`. 1 / sqrt(2) is 0.70710678f.",
        "`out[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));`",
    ),
    onward="erff alone is dozens of instructions. Why is this no slower than a copy?",
    counts=moves(),
    structure=(
        Structure(
            lacks=IN_DOUBLE,
            message="The values are right, and the machine code computes in double "
            "(DADD, DMUL, DFMA): write erff and 0.5f, 1.0f.",
        ),
    ),
    speed=timed(length_case(TIMED), {"bronze": 0.35, "silver": 0.47, "gold": 0.56}),
)
