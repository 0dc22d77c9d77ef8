"""Chapter 8: the detective, a softmax of halves that leaves the range of a half."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.exercise import (
    Case,
    Count,
    Exercise,
    NearMiss,
    Structure,
)
from autograder.exercises._softmax import (
    STEM,
    THREADS,
    TOLERANCE,
    block_problem,
    cut,
    drawn,
    from_zero,
    highest,
    joined,
    of_rows,
    rows_case,
    shared_misses,
    softmax,
    weights,
    without_maximum,
)

HALF = torch.float16


def _case(rows: int, columns: int, regime: str = "distinct") -> Case:
    return rows_case(rows, columns, regime, HALF)


def _hidden(generator: torch.Generator) -> Iterator[Case]:
    yield _case(drawn(generator, 2, 6), drawn(generator, 2, 200))
    yield _case(drawn(generator, 2, 6), drawn(generator, 257, 900), "warm")
    yield _case(drawn(generator, 2, 6), drawn(generator, 257, 900), "far")
    yield _case(drawn(generator, 2, 6), drawn(generator, 33, 300), "masked")
    yield _case(1, drawn(generator, 70_000, 76_000), "flat")


def _in_half(x: torch.Tensor) -> torch.Tensor:
    """Return what a half makes of x: infinity past 65,504, and 0 below 3e-8."""
    return x.half().double()


def _as_given(x: torch.Tensor) -> torch.Tensor:
    e = _in_half(torch.exp(x))
    return e / _in_half(e.sum(-1, keepdim=True))


def _difference_in_half(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(_in_half(x - highest(x)))
    return e / e.sum(-1, keepdim=True)


def _threads_alone(x: torch.Tensor) -> torch.Tensor:
    """Return what comes of a maximum for each thread, and one total of the row."""
    parts = cut(x, THREADS)
    most = highest(parts.mT).mT  # of a thread's columns
    e = torch.exp(parts - most)
    # A thread without a column adds 0; one that has seen only -inf, NaN.
    idle = torch.arange(THREADS) >= x.shape[1]
    total = e.sum(1).masked_fill(idle, 0.0).sum(1)
    return joined(x, e / total[:, None, None])


def _written_without(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x.float()).double()
    return e / weights(x).sum(-1, keepdim=True)


def _summed_without(x: torch.Tensor) -> torch.Tensor:
    total = torch.exp(x.float()).double().sum(-1, keepdim=True)
    return weights(x) / total.float().double()


def _summed_in_half(x: torch.Tensor) -> torch.Tensor:
    e = weights(x)
    return e / _in_half(e.sum(-1, keepdim=True))


FP16_OVERFLOW = Exercise(
    id="fp16_overflow",
    stem=STEM,
    title="The row that came out as zeros",
    kind="detective",
    points=20,
    language="cuda",
    entry="kernel",
    name="fp16_overflow",
    source="autograder/answers/softmax/fp16_overflow.cu",
    goal="Mend a softmax of halves that is right on short rows of small numbers, and "
    "gives 0 or NaN on others.",
    requirements=(
        "A block of 256 threads a row; x and out stay halves.",
        "Right for any logits that a half holds, and for rows of 70,000 columns.",
        "A row that is all -inf gives NaN.",
        "At most three sweeps over the row, and coalesced.",
    ),
    problem=block_problem,
    reference=softmax,
    cases=(
        _case(4, 1024),
        _case(3, 700, "warm"),
        _case(3, 500, "far"),
        _case(1, 70_000, "flat"),
        _case(3, 300, "cold"),
        _case(4, 129, "masked"),
        _case(5, 31),
        _case(3, 1),
    ),
    hidden=_hidden,
    tolerance=TOLERANCE,
    near_misses=(
        NearMiss(
            "summed in half",
            of_rows(_summed_in_half),
            "No exponential is over 1 now, and more than 65,504 of them still "
            "overflow: keep the sum in float.",
        ),
        NearMiss(
            "maximum from zero",
            of_rows(from_zero),
            "The maximum begins at 0: where all of a row is far below, exp(x - 0) is "
            "0 and so is the sum. Begin at -INFINITY.",
        ),
        NearMiss(
            "no maximum",
            of_rows(without_maximum),
            "The sum is wide enough now, and exp(x) is not: a float ends at x = 88.7. "
            "Take the row's maximum away first.",
        ),
        NearMiss(
            "difference in half",
            of_rows(_difference_in_half),
            "x - maximum is rounded to a half before its exponential is taken: from 4 "
            "on halves are 0.004 apart, and so the weight is off by as much of "
            "itself. Widen both, then subtract: __half2float(in[c]) - most.",
        ),
        NearMiss(
            "threads alone",
            of_rows(_threads_alone),
            "Each thread takes away the maximum of its own columns, and the total adds "
            "up what is relative to 256 maxima. Behind the tree part[0] holds the "
            "row's: read it back.",
        ),
        NearMiss(
            "written without maximum",
            of_rows(_written_without),
            "The total is relative to the maximum, and what you write is not: take it "
            "away in the last sweep too.",
        ),
        NearMiss(
            "summed without maximum",
            of_rows(_summed_without),
            "What you write is relative to the maximum, and the total is not: take it "
            "away in the sweep that sums too.",
        ),
        NearMiss(
            "as it was",
            of_rows(_as_given),
            "The sum leaves the range of a half, which ends at 65,504: e / inf "
            "is 0, and inf / inf is NaN. Which two numbers grow too large?",
        ),
        *(
            NearMiss(*miss)
            for miss in shared_misses()
            # The first has words of its own here; of the second a half shows nothing.
            if miss[0] not in ("no maximum", "by the logarithm")
        ),
    ),
    hints=(
        "A half ends at 65,504. From which x on is exp(x) more? And how many columns "
        "of exp(8) does it take?",
        "Two faults. Take the maximum of the row away before the exponential, so that "
        "none is over 1; and add them in float, since a row can hold 70,000 ones.",
        "Make part an array of float. First sweep: fmaxf of __half2float(in[c]), from "
        "-INFINITY, and the same tree with fmaxf. Read part[0], then a barrier before "
        "part is used again. Then the sum of expf(__half2float(in[c]) - most).",
    ),
    onward="bfloat16 has the range of a float. Which of the two faults would it hide?",
    counts=(
        # Three sweeps of 4 x 1,024 halves.
        Count("bytes", "global", "load", at_most=1.02 * 24_576, ideal=16_384),
        Count("bytes", "global", "store", at_most=1.02 * 8_192, ideal=8_192),
        Count("sectors_per_request", "global", "load", at_most=4.5, ideal=2.0),
    ),
    structure=(
        Structure(
            lacks=("DADD", "DMUL", "DFMA"),
            message="The values are right, and the machine code computes in double "
            "(DADD, DMUL, DFMA): float is wide enough.",
        ),
    ),
)
