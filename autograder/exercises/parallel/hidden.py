"""Hidden cases: other numbers of ranks, awkward sizes, drawn from the secret seed."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import drawn
from autograder.exercise import Case
from autograder.exercises.parallel.bucket_gradients import bucket_case
from autograder.exercises.parallel.products import product_case
from autograder.exercises.parallel.ring_attention import ring_case
from autograder.exercises.parallel.shared import training_case


def _buckets(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("mixed", "exact", "large", "small"):
        count, limit = drawn(generator, 10, 30), 8 * drawn(generator, 40, 90)
        yield bucket_case(count, limit, regime)


def _trainings(generator: torch.Generator) -> Iterator[Case]:
    widths = tuple(drawn(generator, 2, 8) for _ in range(4))
    yield training_case(2, widths, drawn(generator, 60, 200), steps=3)
    yield training_case(4, widths[:3], drawn(generator, 60, 200))


def _products(generator: torch.Generator) -> Iterator[Case]:
    for ranks in (2, 4):
        inner, outer = (ranks * drawn(generator, 1, 9) for _ in range(2))
        yield product_case(ranks, drawn(generator, 2, 20), inner, outer)


def _rings(generator: torch.Generator) -> Iterator[Case]:
    for ranks, causal in ((4, 0), (4, 1), (2, 0)):
        tokens, d = drawn(generator, 2, 12), drawn(generator, 3, 9)
        yield ring_case(ranks, drawn(generator, 1, 4), tokens, d, causal)


HIDDEN = {
    "bucket_gradients": {"hidden": _buckets},
    "bucketed_ddp": {"hidden": _trainings},
    "column_parallel": {"hidden": _products},
    "row_parallel": {"hidden": _products},
    "stale_bucket": {"hidden": _trainings},
    "ring_attention": {"hidden": _rings},
}
