"""Hidden cases of chapter 4: awkward lengths and shapes, from the secret seed."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import drawn
from autograder.exercise import Case
from autograder.exercises.reduction.shared import matrix_case, vector_case
from autograder.exercises.reduction.sum_all import MANY


def _lengths(generator: torch.Generator) -> Iterator[Case]:
    """Draw awkward lengths: around a warp, around a block, past several."""
    yield vector_case(drawn(generator, 2, 32))
    yield vector_case(drawn(generator, 33, 256), "shifted")
    yield vector_case(256 * drawn(generator, 1, 6) + drawn(generator, 1, 32))
    yield vector_case(256 * drawn(generator, 2, 6) - drawn(generator, 1, 32))
    yield vector_case(32 * drawn(generator, 9, 60), "special")
    yield vector_case(drawn(generator, 2000, 6000), "shifted")


def _matrices(generator: torch.Generator) -> Iterator[Case]:
    """Draw awkward shapes: thin, wide, around warps and blocks."""
    yield matrix_case(drawn(generator, 1, 9), drawn(generator, 2, 32))
    yield matrix_case(drawn(generator, 2, 9), drawn(generator, 257, 600), "shifted")
    yield matrix_case(drawn(generator, 33, 70), drawn(generator, 33, 70))
    yield matrix_case(drawn(generator, 200, 400), drawn(generator, 1, 6), "special")
    yield matrix_case(drawn(generator, 2, 5), drawn(generator, 1500, 3000))


def _all(generator: torch.Generator) -> list[Case]:
    return [
        vector_case(drawn(generator, 2, 256)),
        vector_case(4 * drawn(generator, 300, 900) + 1, "shifted"),
        vector_case(4 * drawn(generator, 1500, 2500) + 2),
        vector_case(4 * drawn(generator, 4000, 8000) + 3, "shifted"),
        vector_case(drawn(generator, 30_000, 60_000), "shifted"),
        # Last: who leaves the counter as it is stops here somewhere in the middle.
        Case("260 blocks", {"n": drawn(generator, MANY[1], MANY[-1])}),
    ]


HIDDEN = {
    "block_sum": {"hidden": _lengths},
    "warp_sum": {"hidden": _lengths},
    "sum_squared": {"hidden": _matrices},
    "mean_abs": {"hidden": _matrices},
    "lost_lanes": {"hidden": _lengths},
    "sum_all": {"hidden": _all},
}
