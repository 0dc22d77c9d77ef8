"""Chapter 5: the detective, a variance that cancels far from zero."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
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
    draw_rows,
    hidden_rows,
    mistaken,
    parts,
    rows_case,
    scaled,
    warps_launch,
)
from autograder.exercises._layernorm_mistakes import ONE_LESS, summed
from autograder.totals import moves


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


def _mean_rounded(arguments: Arguments) -> Outputs:
    """Return what two sweeps make: exact deviations from a mean that is a float."""
    d, _, squares = _rest(arguments)
    return {"out": d * (squares + EPS).rsqrt()}


def _rest(arguments: Arguments) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the deviations from a mean that is a float, their mean and squares'."""
    x = tensor(arguments, "x")
    d = (x - summed(x) / x.shape[1]).double()
    return d, d.mean(1, keepdim=True), (d * d).mean(1, keepdim=True)


def _left_in_the_variance(arguments: Arguments) -> Outputs:
    d, rest, squares = _rest(arguments)
    return {"out": (d - rest) * (squares + EPS).rsqrt()}


def _left_in_the_row(arguments: Arguments) -> Outputs:
    d, rest, squares = _rest(arguments)
    return {"out": d * (squares - rest * rest + EPS).rsqrt()}


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
            "rest left in the variance",
            _left_in_the_variance,
            "The mean is exact now, and the squares are still about the rounded one: "
            "they are larger by rest * rest, which is to be taken away.",
        ),
        NearMiss(
            "rest left in the row",
            _left_in_the_row,
            "The variance is exact now, and every output still holds what the mean was "
            "off by: take `rest` away from v[k] too.",
        ),
        NearMiss(
            "one less",
            ONE_LESS,
            "The variance is divided by columns - 1: divide by columns.",
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
    counts=moves(times=1.25),
    structure=(
        Structure(
            lacks=("DADD", "DMUL", "DFMA"),
            message="The values are right, and the machine code computes in double "
            "(DADD, DMUL, DFMA), 2 to 64 times slower: float throughout.",
        ),
    ),
)
