"""The detective: a weight and its value that take different times."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Output,
    Outputs,
    Problem,
)
from autograder.exercises.streaming_fpga.shared import (
    ONE,
    PRELUDE,
    bounded,
    codes,
    pauses,
    stream_case,
    weight_bound,
)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    gaps = torch.randint(0, 2048, (n, 1), generator=generator)
    values = codes(generator, n, 1)
    return Problem(
        {
            "item": torch.cat([gaps, values], 1),
            **pauses(case, generator, "item", cycles=6 * n),
            "width": 8,
        },
        {"out": Output((n,), torch.float64)},
        cycles=12 * n + 60,
    )


def _reference(arguments: Arguments) -> Outputs:
    gaps, values = tensor(arguments, "item").double().T
    return {"out": ONE * 2.0 ** (-gaps / 256) * values}


def _bound(arguments: Arguments) -> Outputs:
    gaps, values = tensor(arguments, "item").T
    return {"out": weight_bound(gaps) * values.abs()}


LATENCY_MISMATCH = Exercise(
    id="latency_mismatch",
    title="A value that comes too early",
    kind="detective",
    points=20,
    language="python",
    entry="circuit",
    name="WeighedValue",
    source="solutions/streaming_fpga/weighed_value.py",
    goal="Mend the circuit that weighs values: with one item it is right, with a "
    "constant stream too, and attention behind it is a little wrong everywhere.",
    requirements=(
        "`item` is a stream of (gap, value): a distance below the reference, 12 bits, "
        "8 of them behind the point, and a signed code of `width` bits.",
        "`out` gives 2^(-gap) times the value, the weight with 16 bits behind the "
        "point.",
        "One item a cycle; each comes out once, in order, whatever the outside's "
        "pauses.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        stream_case(
            n=48,
        ),
        stream_case("pauses", n=37),
        stream_case("blocked", n=21),
        stream_case("starved", n=21),
        stream_case(n=1),
    ),
    tolerance=bounded(_bound),
    hints=(
        "Follow item 0 through both paths and write down, cycle by cycle, which "
        "register holds its weight and which its value. Then let `out` wait for one "
        "cycle.",
        "Two faults. How many registers are between `item` and the product on the "
        "weight's path, and how many on the value's? And which registers stop when "
        "`advance` is 0?",
        "The table's read register and `weight` are two; the value has one. Add a "
        "second, and move both under `with m.If(advance):`.",
    ),
    onward="Write the test that finds both: how short may its stream be?",
    counts=(
        Count("cycles", ideal=51),
        Count("multipliers", ideal=1, times=1),
        Count("register bits", ideal=66, times=1.5, at_least=40),
    ),
    repeats=("item", "item.valid", "out.ready"),
    prelude=PRELUDE,
)
