"""The detective: a backward pass that draws another mask than forward did.

**Tolerance.** The slope of GELU, Phi + x phi(x), is off by the roundings of both, some
4 * eps of what is at most 1.2; it is multiplied three times. 8 * eps relative to the
gradient that comes in, scaled, is what a right answer needs and as much again.
"""

from __future__ import annotations

import math

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
from autograder.exercises.fusion.gelu_dropout import dropout_case
from autograder.exercises.fusion.philox import draw_seed_and_p, kept
from autograder.exercises.fusion.shared import (
    IN_DOUBLE,
    draw_values,
    fours_launch,
)
from autograder.ideals import moves


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    x = draw_values(case, generator, n)
    slope = torch.randn(n, generator=generator)
    seed, p = draw_seed_and_p(case, generator)
    return Problem(
        {"x": x, "slope": slope, "grad": None, "n": n, "seed": seed, "p": p},
        {"grad": Output((n,), torch.float32)},
        fours_launch(n),
    )


def _reference(arguments: Arguments) -> Outputs:
    x = tensor(arguments, "x").double()
    below = 0.5 * (1 + torch.erf(x / math.sqrt(2)))
    slope = below + x * torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    mask, scale = kept(arguments, x.numel())
    grad = tensor(arguments, "slope").double() * slope * scale
    return {"grad": torch.where(mask, grad, 0.0)}


def _magnitude(arguments: Arguments) -> Outputs:
    slope = tensor(arguments, "slope").double().abs()
    mask, scale = kept(arguments, slope.numel())
    return {"grad": torch.where(mask, slope * scale, 0.0)}


DROPOUT_REPLAY = Exercise(
    id="dropout_replay",
    title="Gradients through dropped elements",
    kind="detective",
    points=20,
    language="cuda",
    entry="kernel",
    name="dropout_replay",
    source="autograder/exercises/fusion/dropout_replay.cu",
    goal="Mend the backward pass of `gelu_dropout`: its share of zeros is right, its "
    "mean is right, and the network does not learn as it should.",
    requirements=(
        "`grad[i]` is 0 where forward's `out[i]` was dropped, and else `slope[i]` "
        "times GELU's derivative at `x[i]`, divided by 1 - p.",
        "Forward gave element i word i % 4 of `philox(i / 4, seed)`. `philox`, "
        "`word_of` and `gelu_slope` are right.",
        "The launch has a thread for every four elements; `n` is any number.",
        "Each element is read once and written once, coalesced.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        dropout_case(2048, 50),
        dropout_case(1030, 10),
        dropout_case(1009, 30, "wide"),
        *(dropout_case(n, 20) for n in (257, 5, 4, 3, 1, 0)),
        dropout_case(129, 0),
        dropout_case(302, 40, "met"),
        dropout_case(500, 90),
    ),
    tolerance=Tolerance(8.0, scale=_magnitude),
    hints=(
        "Run forward and backward with one seed, and compare where each is zero. In "
        "which elements do the two agree?",
        "The four elements of a thread are `threads` apart here, and were neighbours "
        "in forward. So whose four words does philox(thread, seed) hold?",
        "For each i on its own: r = philox(i / 4, seed), and word_of(r, i % 4). Or "
        "give the thread its four neighbours back, in 16-byte loads, and draw once.",
    ),
    onward="Write the test that would have found it: three lines, and no rate in them.",
    counts=moves(),
    # With two elements behind the last four.
    counted=1,
    structure=(
        Structure(
            lacks=IN_DOUBLE,
            message="The values are right, and the machine code computes in double "
            "(DADD, DMUL, DFMA): float is wide enough.",
        ),
    ),
)
