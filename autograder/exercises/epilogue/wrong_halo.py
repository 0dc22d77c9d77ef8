"""The detective: a convolution that is right in the middle and wrong on the rim.

**Tolerance.** Nine products and eight additions in fp32, in any order: an error of
about sqrt(9) roundings of half an eps, each of a partial sum that |x| |weight| bounds;
twice that is allowed.
"""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Launch,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)
from kernelwright.emulator.operations import BUSIEST_WARP

_THREADS = 256
_REGIMES = {"distinct": "normal values", "special": "NaN and Inf among them"}


def halo_case(
    images: int, height: int, width: int, channels: int, regime: str = "distinct"
) -> Case:
    """Return a case of one shape, named as the learner reads it."""
    sizes = {"images": images, "height": height, "width": width, "channels": channels}
    said = " x ".join(str(size) for size in sizes.values())
    return Case(f"{said}, {_REGIMES[regime]}", sizes, regime)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    shape = tuple(case.sizes[n] for n in ("images", "height", "width", "channels"))
    x = torch.randn(shape, generator=generator)
    if case.regime == "special":
        for start, value in enumerate((torch.nan, torch.inf)):
            x.view(-1)[start * 29 :: 149] = value
        x[-1, -1, -1] = -torch.inf  # in a corner: 0 times Inf is NaN
    weight = torch.randn(3, 3, shape[-1], generator=generator)
    return Problem(
        {"x": x, "weight": weight, "out": None, **case.sizes},
        {"out": Output(shape, torch.float32)},
        Launch((-(-x.numel() // _THREADS),), (_THREADS,)),
    )


def _convolved(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    filters = weight.permute(2, 0, 1)[:, None]
    images = x.permute(0, 3, 1, 2)
    sums = torch.nn.functional.conv2d(images, filters, padding=1, groups=len(filters))
    return sums.permute(0, 2, 3, 1).contiguous()


def _reference(arguments: Arguments) -> Outputs:
    x, weight = (tensor(arguments, n).double() for n in ("x", "weight"))
    # One product at a time, for the zeros of the halo are no factors: Inf times a
    # weight is added, and 0 times Inf nowhere.
    return {"out": _convolved(x, weight)}


def _scale(arguments: Arguments) -> Outputs:
    x, weight = (tensor(arguments, n).double().abs() for n in ("x", "weight"))
    return {"out": _convolved(x.nan_to_num(0.0, 0.0, 0.0), weight)}


WRONG_HALO = Exercise(
    id="wrong_halo",
    title="Right in the middle, wrong on the rim",
    kind="detective",
    points=15,
    language="cuda",
    entry="kernel",
    name="wrong_halo",
    source="autograder/exercises/epilogue/wrong_halo.cu",
    goal="Mend a convolution that never leaves its tensor, and is wrong along "
    "the edges of the images.",
    requirements=(
        "The launch is whole blocks of 256 threads, one thread per element of out.",
        "Outside of its own image each channel sees zeros, left and right, above and "
        "below, also where there are several images.",
        "Right for images of one row, one column, one pixel.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        halo_case(2, 8, 12, 4),
        halo_case(1, 7, 9, 3),
        halo_case(3, 5, 1, 2),
        halo_case(2, 1, 6, 5),
        halo_case(3, 1, 1, 7),
        halo_case(1, 6, 11, 1),
        halo_case(2, 9, 8, 3, "special"),
    ),
    tolerance=Tolerance(factor=1.0, length=lambda case: 9, scale=_scale),
    hints=(
        "Look at the picture of what is wrong: where in an image does it lie? Then "
        "take an element of column 0, and follow where its left neighbour's index "
        "leads.",
        "Index i - channels is inside of the tensor, and it is the last pixel of the "
        "row above. One comparison of a flat index cannot see that. Which row and "
        "which column is i?",
        "int column = i / channels % width, row = i / channels / width % height; then "
        "a neighbour counts where 0 <= row + down < height and 0 <= column + across < "
        "width.",
    ),
    onward="Every element works its row and column out by divisions. What would a "
    "launch with one block a row of the image save?",
    counts=(
        # Nine neighbours and nine weights an element at most; each place stored once.
        Count("bytes", "global", "load", passes={"x": 9, "weight": 9 * 2 * 8 * 12 / 9}),
        Count("bytes", "global", "store"),
        Count("writers", "global", "store", ideal=1, times=1),
        Count(BUSIEST_WARP, times=2.5),
    ),
    structure=(
        Structure(
            lacks=("DADD", "DMUL", "DFMA"),
            message="The values are right, and the machine code computes in double "
            "(DADD, DMUL, DFMA): float is wide enough.",
        ),
    ),
    shares={"correct": 0.7, "counts": 0.3, "speed": 0.0},
)
