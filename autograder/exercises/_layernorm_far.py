"""Chapter 5: the detective, a variance that cancels far from zero."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn.functional import pad

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    NearMiss,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)
from autograder.exercises._layernorm import (
    EPS,
    STEM,
    WARP,
    draw_rows,
    hidden_rows,
    mistaken,
    parts,
    rows_case,
    scaled,
    warps_launch,
)


def _far_problem(case: Case, generator: torch.Generator) -> Problem:
    x = draw_rows(case, generator)
    rows, columns = x.shape
    return Problem(
        {"x": x, "out": None, "rows": rows, "columns": columns, "eps": EPS},
        {"out": Output((rows, columns), torch.float32)},
        warps_launch(rows),
    )


def _near_scale(arguments: Arguments) -> Outputs:
    """Return the magnitude of the normalised rows themselves: no digit may be lost."""
    return {"out": (parts(arguments).h.abs() + 1.0).nan_to_num(0.0)}


def _summed(values: torch.Tensor) -> torch.Tensor:
    """Add rows up in fp32 as the given kernel does: a lane's own, then by halves."""
    rounds = -(-values.shape[1] // WARP)
    own = pad(values, (0, rounds * WARP - values.shape[1]))
    lanes = own[:, :WARP].clone()
    for k in range(1, rounds):
        lanes = lanes + own[:, WARP * k : WARP * (k + 1)]
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes


def _mean_rounded(arguments: Arguments) -> Outputs:
    """Return what two sweeps make: exact deviations from a mean that is a float."""
    x = tensor(arguments, "x")
    d = (x - _summed(x) / x.shape[1]).double()
    variance = (d * d).mean(1, keepdim=True)
    return {"out": d * (variance + EPS).rsqrt()}


def _hidden_far(generator: torch.Generator) -> Iterator[Case]:
    for case in hidden_rows(1025, 1, ("far", "far"))(generator):
        yield rows_case(case.sizes["rows"], case.sizes["columns"], "far")
    yield rows_case(4, 300)


VARIANCE_CANCELS = Exercise(
    id="variance_cancels",
    stem=STEM,
    title="The variance that cancels",
    kind="detective",
    points=20,
    language="cuda",
    entry="kernel",
    name="variance_cancels",
    source="autograder/answers/layernorm/variance_cancels.cu",
    goal="Mend a kernel that normalises ordinary rows well and rows far from zero not "
    "at all: right to five digits with mean 10,000 and deviation 0.01.",
    requirements=(
        "A warp a row of up to 1,024 floats, as before; float throughout.",
        "x is loaded once.",
        "With mean 10,000 and deviation 0.01 as exact as with mean 0.",
    ),
    problem=_far_problem,
    reference=lambda arguments: {"out": parts(arguments).h},
    cases=(
        rows_case(8, 512, "far"),
        rows_case(5, 1000, "far"),
        rows_case(4, 768),
        rows_case(3, 33, "offset"),
        rows_case(3, 1),
        rows_case(3, 640, "nan"),
    ),
    hidden=_hidden_far,
    # Deviations are exact, their sums round as any sum of N small numbers does: half
    # an eps of each partial sum. An unmended mean is off by 0.05 deviations.
    tolerance=Tolerance(
        factor=2.0, length=lambda case: case.sizes["columns"], scale=_near_scale
    ),
    near_misses=(
        NearMiss(
            "mean rounded",
            _mean_rounded,
            "The variance has its digits now, and the mean has not: near 10,000 floats "
            "are 0.001 apart, and what the mean is off by is in every output. Sum what "
            "is left of the row too, and take its mean away as well.",
        ),
        NearMiss(
            "variance zero",
            scaled(lambda p: torch.full_like(p.variance, p.eps).rsqrt()),
            "The rows are divided by sqrt(eps) alone: the variance has come out as 0.",
        ),
        NearMiss(
            "no eps",
            scaled(lambda p: p.variance.rsqrt()),
            "eps is not added to the variance.",
        ),
        NearMiss(
            "mean kept",
            mistaken(lambda p, arguments: p.x * p.rstd),
            "The variance is right now, and the mean is not taken away from x.",
        ),
    ),
    hints=(
        "Work it out for one row: the squares are near 10^8, a float has 24 bits. How "
        "far apart are two neighbouring floats there, and how large is the variance?",
        "The row is in registers: take the mean away first, and square what is left. "
        "Better, and not yet good: near 10,000 the mean itself is rounded to a "
        "multiple of 0.001, a tenth of the deviation.",
        "Sum the deviations v[k] - mean as well as their squares. Their mean, `rest`, "
        "is what the rounded mean was off by: variance = squares / columns - rest * "
        "rest, and out = (v[k] - rest) * rstd, with v[k] the deviation.",
    ),
    onward="Subtract x[row * columns] from everything first, and leave the rest as it "
    "was: when is that enough?",
    counts=(Count("bytes", "global", "load", at_most=20_480, ideal=16_384),),
    structure=(
        Structure(
            lacks=("DADD", "DMUL", "DFMA"),
            message="The values are right, and the machine code computes in double "
            "(DADD, DMUL, DFMA), 2 to 64 times slower: float throughout.",
        ),
    ),
)
