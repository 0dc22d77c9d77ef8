"""Matrices to quantize: the ranges that groups have, and no value near a tie.

Where w / scale is halfway between two integers, the last bit of a float decides the
code. ``clear_of_ties`` moves each value towards its nearest code by a fifth of its
distance: ranges, scales and zeros stay as they were, and every code follows by a wide
margin.
"""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, Case, Outputs

RANGES = {
    "distinct": "normal values",
    "outliers": "an outlier in every third group",
    "positive": "no value below zero",
    "negative": "no value above zero",
    "zeros": "some groups of zeros",
    "halves": "zero points halfway between two codes",
    "ties": "values halfway between two codes",
    "far": "some groups near 1e-12, others near 1e12",
}


def groups_case(
    rows: int, columns: int, group_size: int, regime: str = "distinct"
) -> Case:
    """Return a case of one shape, named as the learner reads it."""
    return Case(
        f"{rows} x {columns}, groups of {group_size}, {RANGES[regime]}",
        {"rows": rows, "columns": columns, "group_size": group_size},
        regime,
    )


def draw_weight(case: Case, generator: torch.Generator) -> torch.Tensor:
    """Draw a matrix in the case's regime; rows and groups differ in range."""
    rows, columns, size = (case.sizes[n] for n in ("rows", "columns", "group_size"))
    group = torch.arange(columns) // size
    weight = torch.randn(rows, columns, generator=generator)
    if case.regime == "halves":
        # From -1.5 to 13.5 steps: a zero of 2, and the highest code would be 16. Every
        # other group from -2.5 to 12.5: a zero of 2 again, the even one.
        codes = torch.randint(-1, 14, (rows, columns), generator=generator)
        offset = 0.8 * torch.rand(rows, columns, generator=generator) - 0.4
        weight = (codes + offset).clamp(-1.4, 13.4)
        weight[:, ::size] = -1.5
        weight[:, 1::size] = 13.5
        return (weight - group % 2) * torch.exp2(group % 5 - 2.0)
    if case.regime == "ties":
        # From -3 to 12 steps: an odd zero, to which nothing is added before rounding.
        weight = torch.randint(-3, 12, (rows, columns), generator=generator) + 0.5
        weight[:, ::size], weight[:, 1::size] = -3.0, 12.0
        return weight * torch.exp2(group % 5 - 2.0)
    # Ranges differ along rows and columns, and lie about zero in many ways.
    weight += torch.randn(rows, 1, generator=generator)
    weight *= torch.exp(torch.randn(columns, generator=generator)[group])
    weight *= 1 + torch.rand(rows, 1, generator=generator)
    if case.regime == "outliers":
        weight[:, 0 :: 3 * size] *= 20.0
    elif case.regime == "positive":
        weight = weight.abs() + 0.5
    elif case.regime == "negative":
        weight = -weight.abs() - 0.5
    elif case.regime == "zeros":
        nothing = (torch.arange(rows)[:, None] + group) % 3 == 1
        weight[nothing] = 0.0
    elif case.regime == "far":
        # Neither an epsilon beside the scale nor a half has room for both.
        weight *= torch.exp2(80.0 * (group % 2) - 40.0)
    return clear_of_ties(weight, size)


def clear_of_ties(weight: torch.Tensor, group_size: int) -> torch.Tensor:
    """Move every value towards the nearest code, by a fifth of its distance."""
    columns = weight.shape[1]
    low, high = ranges(weight.double(), group_size)
    by = ((high - low) / 15).repeat_interleave(group_size, 1)[:, :columns]
    steps = (weight.double() / by).nan_to_num(0.0)
    return (by * (steps + 0.2 * (steps.round() - steps))).float()


def ranges(weight: torch.Tensor, group_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ends of each group's range, 0 within it."""
    groups = weight.split(group_size, 1)
    low = torch.cat([g.amin(1, keepdim=True) for g in groups], 1).clamp(max=0)
    high = torch.cat([g.amax(1, keepdim=True) for g in groups], 1).clamp(min=0)
    return low, high


def quantized(arguments: Arguments) -> Outputs:
    """Return codes, scales and zeros in float64."""
    weight, size = tensor(arguments, "weight").double(), arguments["group_size"]
    assert isinstance(size, int)
    low, high = ranges(weight, size)
    scales = torch.where(high > low, (high - low) / 15, 1.0)
    zeros = (-low / scales).round()
    by, zero = (
        one.repeat_interleave(size, 1)[:, : weight.shape[1]] for one in (scales, zeros)
    )
    codes = ((weight / by).round() + zero).clamp(0, 15)
    return {"codes": codes, "scales": scales, "zeros": zeros}
