"""Round a matrix to four bits: a scale and a zero for each group of columns.

**Tolerance.** Codes and zeros are whole numbers and must be equal; the inputs stay
clear of ties, or are exact in them (``groups.py``). A scale is a difference and a
quotient, each rounded once: eps in all. Who multiplies by 1/15 rounds once more. A
factor of 2 has room for both.
"""

from __future__ import annotations

import torch

from autograder.exercise import Case, Exercise, Output, Problem, Tolerance
from autograder.exercises.int4.groups import draw_weight, groups_case, quantized


def _problem(case: Case, generator: torch.Generator) -> Problem:
    weight, size = draw_weight(case, generator), case.sizes["group_size"]
    rows, columns = weight.shape
    groups = rows, -(-columns // size)
    return Problem(
        {"weight": weight, "group_size": size},
        {
            "codes": Output((rows, columns), torch.uint8),
            "scales": Output(groups, torch.float32),
            "zeros": Output(groups, torch.uint8),
        },
    )


QUANTIZE_GROUPS = Exercise(
    id="quantize_groups",
    title="Four bits and a scale",
    kind="core",
    points=15,
    language="python",
    entry="function",
    name="quantize_groups",
    source="solutions/int4/quantize_groups.py",
    goal="Round a matrix to codes of four bits, with a scale and a zero for each group "
    "of neighbouring columns in a row.",
    requirements=(
        "Return `(codes, scales, zeros)`: uint8 of weight's shape, from 0 to 15; fp32 "
        "and uint8, both `(rows, groups)`. `weight` is a finite fp32 matrix, "
        "perhaps without rows.",
        "A group's range goes from `low = min(w, 0)` to `high = max(w, 0)`, so that 0 "
        "always has a code. `scale = (high - low) / 15`.",
        "`zero = round(-low / scale)`, `code = round(w / scale) + zero`, kept within 0 "
        "and 15. `round` is `torch.round`: to the nearest, and to even from halfway.",
        "A group of zeros has scale 1, zero 0 and codes 0.",
        "The last group of a row has what columns are left. Groups lie along a row.",
    ),
    problem=_problem,
    reference=quantized,
    cases=(
        groups_case(5, 70, 32),
        groups_case(4, 256, 128, "outliers"),
        groups_case(6, 64, 16, "positive"),
        groups_case(6, 64, 16, "negative"),
        groups_case(4, 96, 32, "zeros"),
        groups_case(3, 80, 16, "halves"),
        groups_case(3, 80, 16, "ties"),
        groups_case(5, 192, 32, "far"),
        groups_case(8, 8, 8),
        groups_case(3, 10, 128),
        groups_case(2, 7, 1),
        groups_case(0, 64, 32),
    ),
    tolerance=Tolerance(factor=2.0),
    hints=(
        "Give the matrix a third dimension: (rows, groups, group_size). Which "
        "operations then reduce a group, and what may stand in the places that the "
        "last group does not have, so that no range changes?",
        "Pad the columns with zeros (torch.nn.functional.pad), since 0 is within every "
        "range; reshape; amin(dim=2).clamp(max=0), amax(dim=2).clamp(min=0). "
        "scales[..., None] broadcasts over the group. At the end reshape back and cut "
        "the padding off.",
        "scales = (high - low) / 15; scales = torch.where(scales > 0, scales, 1.0); "
        "zeros = torch.round(-low / scales); codes = (torch.round(grouped / "
        "scales[..., None]) + zeros[..., None]).clamp(0, 15).to(torch.uint8).",
    ),
    onward="A range that leaves the outlier out rounds all the others better. Try 0.9 "
    "of it: does the mean squared error of a group of 128 fall?",
)
