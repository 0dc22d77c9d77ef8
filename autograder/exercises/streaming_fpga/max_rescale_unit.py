"""The online softmax as a unit: reference, shift, and a weight from a table."""

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
    ceilings,
    pauses,
    sequences,
    stream_case,
    weight_bound,
)


def _scores(n: int, each: int, top: int, generator: torch.Generator) -> torch.Tensor:
    """Draw codes from -top to top - 1, most of them near each other, as scores are."""

    def drawn(low: int, high: int) -> torch.Tensor:
        return torch.randint(low, high, (n,), generator=generator)

    near = drawn(-1500, 1500)
    # Whole numbers are their own next whole number.
    near[::5] = near[::5] // 256 * 256
    # Steps of 31 to 33 whole numbers, and the codes on both sides of a whole number.
    steps = 8192 * drawn(-2, 3) + 256 * drawn(-1, 2) + drawn(0, 2)
    ends = torch.where(drawn(0, 2) > 0, top - 1, -top)
    scores = torch.stack([near, near, near, steps, steps, drawn(-top, top), ends])
    chosen = scores.gather(0, drawn(0, 7)[None])[0].clamp(-top, top - 1)
    # The reference rises from -19 to 13: by 32, one more than a shift can say.
    chosen[:2] = torch.tensor([-5000, 3328])[:n]
    # In the second sequence it rises by all that the codes can.
    whole = torch.tensor([-top, top - 1])
    chosen[each : each + 2] = whole[: chosen[each : each + 2].numel()]
    return chosen


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n, bits, each = (case.sizes[name] for name in ("n", "bits", "each"))
    scores = _scores(n, each, 2 ** (bits - 1), generator)
    last = (torch.arange(n) % each == each - 1).long()
    return Problem(
        {
            "score": torch.stack([scores, last], 1),
            **pauses(case, generator, "score", cycles=6 * n),
            "score_width": bits,
        },
        {"out": Output((n, 3), torch.float64)},
        cycles=12 * n + 60,
    )


def running(arguments: Arguments) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return each score's gap below its reference, the shifts, and the ends."""
    scores, last = tensor(arguments, "score").T
    gaps, shifts = [], []
    for place in sequences(last):
        highest = ceilings(scores[place]).cummax(0).values
        gaps.append(256 * highest - scores[place])
        shifts.append(highest.diff(prepend=highest[:1]).clamp(max=31))
    return torch.cat(gaps), torch.cat(shifts), last


def _reference(arguments: Arguments) -> Outputs:
    gaps, shifts, last = running(arguments)
    weights = ONE * 2.0 ** (-gaps.double() / 256)
    return {"out": torch.stack([weights, shifts.double(), last.double()], 1)}


def _bound(arguments: Arguments) -> Outputs:
    gaps, _, last = running(arguments)
    exact = torch.zeros(len(last), 2, dtype=torch.float64)
    return {"out": torch.cat([weight_bound(gaps)[:, None], exact], 1)}


MAX_RESCALE_UNIT = Exercise(
    id="max_rescale_unit",
    title="The online softmax as a unit",
    kind="core",
    points=25,
    language="python",
    entry="circuit",
    name="MaxRescaleUnit",
    source="solutions/streaming_fpga/max_rescale_unit.py",
    goal="Give each score that passes its weight 2^(score - reference), and say how "
    "far the sums before it must shift, one score a cycle.",
    requirements=(
        "`score` is a stream of (score, last): a signed code of `score_width` bits, 8 "
        "of them behind the point, and whether it ends a sequence.",
        "The reference is the largest so far, in the sequence, of the scores rounded "
        "**up** to whole numbers.",
        "`out` gives (weight, shift, last) for each: the weight 2^(score - reference) "
        "with 16 bits behind the point, cut off; by how much the reference has risen, "
        "0 for a sequence's first score, at most 31; and `last` as it came.",
        "`table[i]` is 2^(-i / 256), so a weight is an entry, shifted right by the "
        "whole part of its distance (31 places leave nothing).",
        "One score a cycle, 4 or 5 cycles later where nobody pauses (say so in "
        "`latency`): reading the table takes one of them. Nothing is lost or doubled "
        "where the outside waits, also if it is ready only once it has seen valid.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        stream_case(n=96, bits=20, each=16),
        stream_case("pauses", n=61, bits=20, each=13),
        stream_case("blocked", n=33, bits=18, each=11),
        stream_case("starved", n=33, bits=20, each=64),
        stream_case("pauses", n=12, bits=16, each=1),
        stream_case("polite", n=12, bits=20, each=5),
        stream_case(n=1, bits=20, each=1),
    ),
    tolerance=bounded(_bound),
    hints=(
        "Four or five stages: round up; compare, which gives rise and distance; read "
        "the table by the low 8 bits of the distance; shift by the rest. What belongs "
        "to one score moves through all of them together.",
        "(score + 255) >> 8 rounds up. The new reference is `Mux(first | (ceiling > "
        "highest), ceiling, highest)`; only a score that is there may change "
        "`highest`. `read.en` must be `advance`, as the table's register is a stage "
        "too.",
        "Distances are (new << 8) - s, never negative. While the table is read, keep "
        "their whole part, at most 31, in a register. Give the entry a register of its "
        "own, and shift it in the last stage. The rise, at most 31, valid and last "
        "pass as many registers as the weight.",
    ),
    onward="Which stage is the slowest, and could it be two?",
    counts=(
        Count("cycles", ideal=101),
        Count("register bits", ideal=142, times=1.5, at_least=60),
        Count("multipliers", ideal=0, times=1),
    ),
    repeats=("score", "score.valid", "out.ready"),
    prelude=PRELUDE,
)
