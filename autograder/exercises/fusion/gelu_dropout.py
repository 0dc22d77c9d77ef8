"""GELU and dropout, whose mask is computed and never stored."""

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
    Tolerance,
)
from autograder.exercises.fusion.philox import draw_seed_and_p, kept
from autograder.exercises.fusion.shared import (
    GELU_FACTOR,
    IN_DOUBLE,
    TIMED,
    draw_values,
    exact_gelu,
    fours_launch,
    length_case,
    sixteen_bytes,
    timed,
)
from autograder.ideals import moves


def dropout_case(n: int, percent: int, regime: str = "distinct") -> Case:
    """Return a case of which so many in a hundred are dropped."""
    return length_case(n, regime, percent=percent)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    x = draw_values(case, generator, n)
    seed, p = draw_seed_and_p(case, generator)
    return Problem(
        {"x": x, "out": None, "n": n, "seed": seed, "p": p},
        {"out": Output((n,), torch.float32)},
        fours_launch(n),
    )


def _reference(arguments: Arguments) -> Outputs:
    x = tensor(arguments, "x")
    mask, scale = kept(arguments, x.numel())
    return {"out": torch.where(mask, exact_gelu(x) * scale, 0.0)}


def _magnitude(arguments: Arguments) -> Outputs:
    x = tensor(arguments, "x").double().abs().nan_to_num(0.0)
    mask, scale = kept(arguments, x.numel())
    return {"out": torch.where(mask, x * scale, 0.0)}


GELU_DROPOUT = Exercise(
    id="gelu_dropout",
    title="Dropout without a mask in memory",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="gelu_dropout",
    source="solutions/fusion/gelu_dropout.cu",
    goal="Compute GELU and drop elements with probability `p`, by Philox-4x32-10: who "
    "is dropped follows from the element's index and `seed`.",
    requirements=(
        "`philox` makes ten rounds. One takes the 64-bit products M0 * c.x and M1 * "
        "c.z; the new (x, y, z, w) is (high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, "
        "low0). Then W0 and W1 are added to k0 and k1.",
        "Element i takes word i % 4 (x, y, z, w) of `philox(i / 4, seed)`; its u is "
        "(word >> 8) * 2^-24.",
        "Where u >= p it is GELU (exact, by erff) divided by 1 - p, else 0.",
        "The launch has a thread for every four elements, in whole blocks of 256; `n` "
        "is any number. Where all four exist, they are one load and one store of 16 "
        "bytes.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        dropout_case(2048, 50),
        dropout_case(1030, 10),
        dropout_case(1027, 30, "wide"),
        *(dropout_case(n, 20) for n in (255, 5, 4, 3, 1, 0)),
        dropout_case(301, 0, "special"),
        dropout_case(302, 40, "met"),
        dropout_case(1003, 40, "missed"),
        dropout_case(129, 100),
        dropout_case(500, 90),
    ),
    # One more rounding each, of 1 - p and of the quotient.
    tolerance=Tolerance(GELU_FACTOR + 2, scale=_magnitude),
    hints=(
        "Begin with philox alone: __umulhi(a, b) is the high half of a product of two "
        "unsigned numbers, a * b the low one. Read all of c before you write any. "
        "philox(0, 0) must give the words that the chapter prints.",
        "Thread t has elements 4 t to 4 t + 3, and calls philox(t, seed) once: its "
        "words x, y, z, w are for the four. Where all four exist, load a float4; where "
        "fewer do, at the end, take them one by one.",
        "high0 = __umulhi(M0, c.x), low0 = M0 * c.x, the same with M1 and c.z; c = "
        "make_uint4(high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0). In kept_gelu: "
        "float u = (word >> 8) * 0x1p-24f.",
    ),
    onward="Seven rounds pass BigCrush, a hard battery of tests for generators, as "
    "well. Would three fewer save time here?",
    # More warps are launched than there are packs.
    counts=moves(width=16, busiest=5),
    # With three elements behind the last four.
    counted=2,
    structure=(sixteen_bytes(IN_DOUBLE),),
    speed=timed(
        dropout_case(TIMED, 10), {"bronze": 0.40, "silver": 0.53, "gold": 0.65}
    ),
)
