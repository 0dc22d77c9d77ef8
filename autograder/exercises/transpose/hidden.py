"""Hidden cases of chapter 2: awkward lengths and shapes, drawn from the secret seed."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import drawn, vector_case
from autograder.exercise import Case
from autograder.exercises.transpose.shared import matrix_case


def _lengths(generator: torch.Generator) -> Iterator[Case]:
    for low, high, regime in (
        (2, 256, "distinct"),
        (260, 1020, "special"),
        (1025, 5000, "distinct"),
        (5001, 9000, "large"),
    ):
        yield vector_case(drawn(generator, low, high), regime)


def _particles(generator: torch.Generator) -> Iterator[Case]:
    for case in _lengths(generator):
        regime = "special" if case.regime == "special" else "distinct"
        yield vector_case(case.sizes["n"] // 3 + 1, regime)


def _shapes(generator: torch.Generator) -> Iterator[Case]:
    """Draw awkward shapes: inside a tile, around several, thin ones."""

    def draw(low: int, high: int) -> int:
        return drawn(generator, low, high)

    yield matrix_case(draw(2, 31), draw(2, 31))
    yield matrix_case(32 * draw(1, 4) + draw(1, 4), 32 * draw(1, 4) - draw(1, 4))
    yield matrix_case(32 * draw(1, 3), 32 * draw(3, 6))
    yield matrix_case(draw(2, 8), draw(200, 400), "special")


def _in_fours(generator: torch.Generator) -> Iterator[Case]:
    """Draw shapes as ``_shapes`` does, each side a multiple of 4."""
    for case in _shapes(generator):
        rows, columns = (4 * -(-case.sizes[s] // 4) for s in ("rows", "columns"))
        yield matrix_case(rows, columns, case.regime)


HIDDEN = {
    "copy_coalesced": {"hidden": _lengths},
    "transpose_tiled": {"hidden": _shapes},
    "transpose_padded": {"hidden": _shapes},
    "aos_to_soa": {"hidden": _particles},
    "transpose_swizzled": {"hidden": _in_fours},
}
