"""Hidden cases: awkward lengths, drawn from the secret seed."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import drawn
from autograder.exercise import Case
from autograder.exercises.ring_allreduce.shared import ranks_case


def _some(generator: torch.Generator) -> Iterator[Case]:
    yield ranks_case(2, drawn(generator, 100_000, 300_000))
    yield ranks_case(drawn(generator, 3, 6), drawn(generator, 2, 60))


def _split(generator: torch.Generator) -> Iterator[Case]:
    yield ranks_case(2, drawn(generator, 100_000, 300_000), 3)
    ranks = drawn(generator, 3, 6)
    pieces = drawn(generator, 2, 6)
    yield ranks_case(ranks, ranks * drawn(generator, 5, 30) + 1, pieces)


def _small(generator: torch.Generator) -> Iterator[Case]:
    yield ranks_case(2, drawn(generator, 1000, 3000))
    yield ranks_case(drawn(generator, 3, 6), drawn(generator, 2, 300))


HIDDEN = {
    "ring_step": {"hidden": _some},
    "reduce_scatter": {"hidden": _some},
    "all_gather": {"hidden": _some},
    "ring_all_reduce": {"hidden": _split},
    "one_shot_all_reduce": {"hidden": _small},
    "ring_deadlock": {"hidden": _some},
}
