"""The warm-up: a product and a sum in every cycle, in two stages."""

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
    Tolerance,
)
from autograder.exercises.streaming_fpga.shared import (
    PRELUDE,
    codes,
    pauses,
    sequences,
    stream_case,
)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n, width, each = (case.sizes[name] for name in ("n", "width", "each"))
    last = (torch.arange(n) % each == each - 1).long()
    pair = torch.cat([codes(generator, n, 2, width=width), last[:, None]], 1)
    cycles = 12 * n + 40
    return Problem(
        {
            "pair": pair,
            **pauses(case, generator, "pair", cycles=6 * n),
            "width": width,
            "sum_width": 2 * width + 6,
        },
        {"out": Output((n,), torch.int64)},
        cycles=cycles,
    )


def _reference(arguments: Arguments) -> Outputs:
    a, b, last = tensor(arguments, "pair").T
    sums = [(a[s] * b[s]).cumsum(0) for s in sequences(last)]
    return {"out": torch.cat(sums)}


STREAMING_MAC = Exercise(
    id="streaming_mac",
    title="A product and a sum every cycle",
    kind="warm-up",
    points=10,
    language="python",
    entry="circuit",
    name="StreamingMac",
    source="solutions/streaming_fpga/streaming_mac.py",
    goal="Multiply and add one pair a cycle, the product in one stage and the sum in "
    "the next, and wait where the outside does.",
    requirements=(
        "`pair` is a stream of (a, b, last): two signed numbers of `width` bits, and "
        "whether they are the last of their sequence.",
        "For each pair `out` gives the sum of the products up to it, signed, of "
        "`sum_width` bits. Behind a `last` the next sum begins at 0.",
        "The product goes into a register, and is added in the next cycle: n pairs "
        "take n + 2 cycles where nobody pauses.",
        "An item passes in a cycle in which valid and ready are both 1, and only then: "
        "`out` may wait any time, be ready only once it has seen valid, and `pair` may "
        "have gaps.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        stream_case(n=64, width=8, each=16),
        stream_case("pauses", n=41, width=8, each=7),
        stream_case("blocked", n=23, width=6, each=5),
        stream_case("starved", n=23, width=12, each=64),
        stream_case("pauses", n=9, width=4, each=1),
        stream_case("polite", n=9, width=8, each=4),
        stream_case(n=1, width=8, each=1),
    ),
    tolerance=Tolerance(factor=0.0),
    hints=(
        "Two registers, one behind the other: the product, and the sum. Beside each "
        "stands one bit that says whether something is in it.",
        "Both stages move in the same cycles: when the last one is empty, or is being "
        "emptied. `advance = ~out.valid | out.ready`; everything else stands under "
        "`with m.If(advance):`, and `pair.ready` is advance itself.",
        "A sum must not take up a product that is not there: add under `with "
        "m.If(there):`. One more bit remembers whether the last pair added was a "
        "`last`; then `Mux(ended, 0, out.payload)` is what the next product is added "
        "to.",
    ),
    onward="What does the chip do if the sum is 48 bits wide? Synthesise it and see "
    "Fmax.",
    counts=(
        Count("cycles", ideal=66, at_least=66),
        Count("multipliers", ideal=1, times=1),
        Count("register bits", ideal=42, times=1.8, at_least=16),
    ),
    repeats=("pair", "pair.valid", "out.ready"),
    prelude=PRELUDE,
)
