"""Hidden cases of chapter 6: awkward shapes, drawn from the secret seed."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import drawn
from autograder.exercise import Case
from autograder.exercises.matmul.shared import in_fours, shape_case


def _shapes(g: torch.Generator) -> Iterator[Case]:
    """Draw them inside a tile, around several, thin ones, and long sums."""
    yield shape_case(drawn(g, 2, 31), drawn(g, 2, 31), drawn(g, 2, 31))
    m, n = 32 * drawn(g, 1, 3) + drawn(g, 1, 5), 64 * drawn(g, 1, 3) - drawn(g, 1, 5)
    yield shape_case(m, n, 97)
    yield shape_case(drawn(g, 2, 6), drawn(g, 100, 300), 32 * drawn(g, 1, 4), "special")
    m, n, k = drawn(g, 64, 140), drawn(g, 64, 140), drawn(g, 100, 300)
    yield shape_case(m, n, k, "large")


def _in_fours(generator: torch.Generator) -> Iterator[Case]:
    yield from in_fours(*_shapes(generator))


HIDDEN = {
    "matmul_naive": {"hidden": _shapes},
    "matmul_coalesced": {"hidden": _shapes},
    "matmul_tiled": {"hidden": _shapes},
    "matmul_register_blocked": {"hidden": _shapes},
    "missing_barrier": {"hidden": _shapes},
    "matmul_wide": {"hidden": _in_fours},
    "matmul_warp_tiles": {"hidden": _in_fours},
    "matmul_fast": {"hidden": _in_fours},
}
