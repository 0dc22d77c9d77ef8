"""Hidden cases: awkward lengths, drawn from the secret seed."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import drawn, vector_case
from autograder.exercise import Case


def _lengths(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("distinct", "special"):
        yield vector_case(drawn(generator, 2, 64), regime)
        yield vector_case(256 * drawn(generator, 1, 8) + 1, regime)


HIDDEN = {"moe": {"hidden": _lengths}}
