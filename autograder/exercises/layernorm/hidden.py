"""Hidden cases of chapter 5: awkward shapes, drawn from the secret seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from autograder.drawing import drawn
from autograder.exercise import Case
from autograder.exercises.layernorm.rms_norm import halves_case
from autograder.exercises.layernorm.shared import rows_case


def _summaries(generator: torch.Generator) -> Iterator[Case]:
    yield Case("300 pairs, hidden", {"n": 300})
    yield Case("77 pairs, some empty, hidden", {"n": 77}, "zeros")


def _rows(
    most: int, step: int = 1, regimes: tuple[str, ...] = ("offset", "nan")
) -> Callable[[torch.Generator], Iterator[Case]]:
    """Return the function that draws shapes with up to ``most`` columns.

    Args:
        most: of columns.
        step: what the columns are a multiple of.
        regimes: beside ordinary values.
    """

    def hidden(generator: torch.Generator) -> Iterator[Case]:
        for low, high, regime in (
            (2, 8, "distinct"),
            (33, 200, regimes[0]),
            (most // 2, most, "distinct"),
            (most // 8, most // 2, regimes[1]),
        ):
            columns = max(step, drawn(generator, low, high) // step * step)
            yield rows_case(drawn(generator, 3, 12), columns, regime)

    return hidden


def _halves(generator: torch.Generator) -> Iterator[Case]:
    for case in _rows(2049, 8, ("large", "small"))(generator):
        yield halves_case(case.sizes["rows"], case.sizes["columns"], case.regime)


def _backward(generator: torch.Generator) -> Iterator[Case]:
    yield rows_case(drawn(generator, 6, 10), drawn(generator, 257, 900))
    yield rows_case(drawn(generator, 5, 9), drawn(generator, 2, 31))
    yield rows_case(drawn(generator, 11, 16), drawn(generator, 33, 255))


def _far(generator: torch.Generator) -> Iterator[Case]:
    for case in _rows(1025, 1, ("far", "far"))(generator):
        yield rows_case(case.sizes["rows"], case.sizes["columns"], "far")
    yield rows_case(4, 300)


HIDDEN = {
    "welford_combine": {"hidden": _summaries},
    "layer_norm": {"hidden": _rows(1025)},
    "layer_norm_relu": {"hidden": _rows(8193, 4)},
    "rms_norm": {"hidden": _halves},
    "layer_norm_backward": {"hidden": _backward},
    "variance_cancels": {"hidden": _far},
}
