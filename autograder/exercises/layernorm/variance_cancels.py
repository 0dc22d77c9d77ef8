"""The detective: a variance that cancels far from zero."""

from __future__ import annotations

import torch

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
from autograder.exercises.layernorm.shared import (
    draw_rows,
    eps_of,
    parts,
    rows_case,
    warps_launch,
)
from autograder.ideals import moves


def _problem(case: Case, generator: torch.Generator) -> Problem:
    x = draw_rows(case, generator)
    rows, columns = x.shape
    return Problem(
        {"x": x, "out": None, "rows": rows, "columns": columns, "eps": eps_of(case)},
        {"out": Output((rows, columns), torch.float32)},
        warps_launch(rows),
    )


def _scale(arguments: Arguments) -> Outputs:
    """Return the magnitude of the normalised rows themselves: no digit may be lost."""
    return {"out": (parts(arguments).h.abs() + 1.0).nan_to_num(0.0)}


VARIANCE_CANCELS = Exercise(
    id="variance_cancels",
    title="The variance that cancels",
    kind="detective",
    points=20,
    language="cuda",
    entry="kernel",
    name="variance_cancels",
    source="autograder/exercises/layernorm/variance_cancels.cu",
    goal="Mend a kernel that normalises ordinary rows well and rows far from zero not "
    "at all: right to five digits with mean 10,000 and deviation 0.01.",
    requirements=(
        "A warp a row of up to 1,024 floats, as before; float throughout.",
        "x is loaded once.",
        "With mean 10,000 and deviation 0.01 as exact as with mean 0.",
    ),
    problem=_problem,
    reference=lambda arguments: {"out": parts(arguments).h},
    cases=(
        rows_case(8, 512, "far"),
        rows_case(5, 1000, "far"),
        rows_case(4, 768),
        rows_case(3, 33, "offset"),
        rows_case(3, 260, "small"),
        rows_case(3, 1),
        rows_case(3, 640, "nan"),
    ),
    # Deviations are exact, their sums round as any sum of N small numbers does: half
    # an eps of each partial sum. An unmended mean is off by 0.05 deviations.
    tolerance=Tolerance(
        factor=2.0, length=lambda case: case.sizes["columns"], scale=_scale
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
