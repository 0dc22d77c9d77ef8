"""What a release of chapter 8 leaves out: hidden cases, and the online rule itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from autograder.drawing import drawn, tensor
from autograder.exercise import Arguments, Case, Outputs, Tolerance
from autograder.exercises.softmax.fp16_overflow import half_case
from autograder.exercises.softmax.online_update import BEGINNINGS, update_case
from autograder.exercises.softmax.shared import FACTOR, rows_case

HALF = torch.float16


def _rows(
    most: int, dtypes: tuple[torch.dtype, ...] = (torch.float32,)
) -> Callable[[torch.Generator], Iterator[Case]]:
    """Return what draws shapes with up to ``most`` columns."""

    def hidden(generator: torch.Generator) -> Iterator[Case]:
        for number, (low, high, regime) in enumerate(
            (
                # First: of the launches the first dozen are compiled for a GPU too.
                (most // 2, most, "distinct"),
                (2, 32, "distinct"),
                (33, 255, "growing"),
                (257, most // 2, "far"),
                (40, 400, "masked"),
                (100, 300, "cold"),
                (40, 400, "filled"),
                (200, 400, "low"),
            )
        ):
            dtype = dtypes[number % len(dtypes)]
            columns, rows = drawn(generator, low, high), drawn(generator, 3, 6)
            yield rows_case(rows, columns, regime, dtype)
        yield rows_case(1, 1)

    return hidden


def _update(arguments: Arguments) -> Outputs:
    """Take the values in, in float64."""
    names = ("maximum", "total", "values")
    maximum, total, values = (tensor(arguments, name).double() for name in names)
    new = torch.maximum(values.amax(1), maximum)
    base = new.masked_fill(new == -torch.inf, 0.0)
    added = torch.exp(values - base[:, None]).sum(1)
    return {"maximum": new, "total": total * torch.exp(maximum - base) + added}


def _scale(arguments: Arguments) -> Outputs:
    names = ("maximum", "total", "values")
    maximum, before, values = (tensor(arguments, name).double() for name in names)
    right = _update(arguments)
    new = right["maximum"].nan_to_num(0.0, 0.0, 0.0)
    below = (new[:, None] - values).nan_to_num(0.0, 0.0, 0.0)
    e = torch.exp(values - new[:, None])
    fell = (new - maximum).nan_to_num(0.0, 0.0, 0.0)
    moved = (e * below).sum(1) + before * torch.exp(maximum - new) * fell
    root = values.shape[1] ** 0.5  # which the length brings
    total = (right["total"] * (4.0 + root) + moved) / root
    tiny = torch.finfo(torch.float32).tiny
    return {"maximum": new.abs(), "total": total.nan_to_num(0.0) + tiny}


def _updates(generator: torch.Generator) -> Iterator[Case]:
    for regime in BEGINNINGS:
        size = drawn(generator, 4, 14), drawn(generator, 2, 90)
        yield update_case(*size, regime)


def _long_rows(generator: torch.Generator) -> Iterator[Case]:
    yield rows_case(2, drawn(generator, 4097, 8000), "growing")
    yield rows_case(3, drawn(generator, 2, 4000))
    yield rows_case(1, drawn(generator, 9_000, 20_000), "growing", HALF)
    yield rows_case(5, drawn(generator, 4097, 8000), "masked")
    yield rows_case(3, drawn(generator, 4097, 8000), "filled")
    yield rows_case(1, drawn(generator, 265_000, 270_000))  # more than 64 pieces
    yield rows_case(2, drawn(generator, 8300, 9000), "hollow")


def _halves(generator: torch.Generator) -> Iterator[Case]:
    yield half_case(drawn(generator, 2, 6), drawn(generator, 2, 200))
    yield half_case(drawn(generator, 2, 6), drawn(generator, 257, 900), "warm")
    yield half_case(drawn(generator, 2, 6), drawn(generator, 257, 900), "far")
    yield half_case(drawn(generator, 2, 6), drawn(generator, 33, 300), "masked")
    yield half_case(1, drawn(generator, 70_000, 76_000), "flat")
    yield half_case(258, 258, "spiked")


HIDDEN = {
    "online_update": {
        "hidden": _updates,
        "reference": _update,
        "tolerance": Tolerance(
            FACTOR, length=lambda case: case.sizes["columns"], scale=_scale
        ),
    },
    "softmax_online": {"hidden": _rows(6000)},
    "softmax_triton": {"hidden": _rows(5000, (torch.float32, HALF))},
    "softmax_long_rows": {"hidden": _long_rows},
    "fp16_overflow": {"hidden": _halves},
}
