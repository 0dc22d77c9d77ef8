"""Eight halves a thread: 16 bytes a load, a sum in float, rounded once.

A sum of two halves in float is rounded to a half by eps/2 of itself at most, and a
factor of 1 is twice that.
"""

from __future__ import annotations

import torch

from autograder.drawing import draw_pair, tensor, vector_case
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Output,
    Outputs,
    Problem,
    Speed,
    Tolerance,
)
from autograder.exercises.fusion.shared import (
    TIMED,
    covering_launch,
    sixteen_bytes,
)
from autograder.ideals import moves

HALF = torch.float16


def _problem(case: Case, generator: torch.Generator) -> Problem:
    x, y = draw_pair(case, generator)
    if case.regime == "large":  # about every third sum leaves the range of a half
        x, y = x * 3e-33, y * 3e-33
    n = x.numel()
    return Problem(
        {"x": x.half(), "y": y.half(), "out": None, "n": n},
        {"out": Output((n,), HALF)},
        covering_launch(-(-n // 8)),
    )


def _reference(arguments: Arguments) -> Outputs:
    total = tensor(arguments, "x").double() + tensor(arguments, "y").double()
    return {"out": torch.relu(total)}


def halves_case(n: int, regime: str = "distinct") -> Case:
    """Return a case of one length, of halves."""
    case = vector_case(n, regime)
    name = case.name.replace("1e37", "30,000")
    return Case(name, case.sizes, regime, HALF)


ADD_RELU = Exercise(
    id="add_relu",
    title="Eight halves a thread",
    kind="core",
    points=15,
    language="cuda",
    entry="kernel",
    name="add_relu",
    source="solutions/fusion/add_relu.cu",
    goal="Compute `relu(x + y)` of halves, with one 16-byte load of each input per "
    "thread.",
    requirements=(
        "The launch has a thread for every eight elements, in whole blocks of 256; `n` "
        "is any number, so the last elements may fill no pack.",
        "`x`, `y` and `out` begin at multiples of 16 bytes: a `Pack` is eight halves, "
        "and `add_relu_all` calls your `add_relu_one` for each.",
        "A NaN stays NaN, as in torch; infinities add as in float.",
        "The machine code loads and stores 128 bits at a time.",
    ),
    problem=_problem,
    reference=_reference,
    # Whole warps of whole packs first, then several blocks and a tail.
    cases=(
        halves_case(4096),
        halves_case(2053),
        *(halves_case(n) for n in (2047, 16, 9, 8, 7, 1, 0)),
        halves_case(1000, "zeros"),
        halves_case(501, "large"),
        halves_case(515, "special"),
    ),
    tolerance=Tolerance(factor=1.0),
    hints=(
        "`reinterpret_cast<const Pack*>(x)[thread]` is eight halves in one load. How "
        "many whole packs are there, and which elements are left?",
        "n / 8 packs: the threads below that number take one each. The last n % 8 "
        "elements begin at 8 * (n / 8), one a thread. In add_relu_one widen both with "
        "__half2float, and compare so that NaN goes through.",
        "`return __float2half(sum < 0.0f ? 0.0f : sum);` In the kernel, where thread < "
        "n / 8: load Pack p of x and Pack q of y, and store add_relu_all(p, q) to "
        "reinterpret_cast<Pack*>(out)[thread]. Then int last = 8 * (n / 8) + thread.",
    ),
    onward="__hadd2 adds two halves in one instruction. Would it change the time?",
    # More warps are launched than there are packs.
    # One thread may take all of the last seven elements.
    counts=moves(width=16, busiest=8),
    # With five elements behind the last pack.
    counted=1,
    structure=(sixteen_bytes(),),
    speed=Speed(
        peer="copy bandwidth",
        case=halves_case(2 * TIMED),
        bytes_moved=lambda case: 6 * case.sizes["n"],
        bands={"bronze": 0.60, "silver": 0.80, "gold": 0.92},
    ),
)
