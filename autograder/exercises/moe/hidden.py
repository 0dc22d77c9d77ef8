"""Hidden cases: awkward lengths, drawn from the secret seed."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import drawn
from autograder.exercise import Case
from autograder.exercises.moe.grouped_gemm import ragged_case
from autograder.exercises.moe.routed import routed_case
from autograder.exercises.moe.topk_gating import gating_case


def _gatings(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("distinct", "ties", "masked", "far", "cold"):
        experts = drawn(generator, 40, 257)
        k = drawn(generator, 2, 9)
        yield gating_case(drawn(generator, 8, 11), experts, k, regime)
    experts = drawn(generator, 2, 11)
    yield gating_case(3, experts, experts)


def _offsets(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("spread", "skewed", "idle", "crowded"):
        yield routed_case(
            regime,
            pairs=drawn(generator, 300, 3000),
            experts=drawn(generator, 4, 257),
        )
    yield routed_case(pairs=drawn(generator, 2, 32), experts=256)


def _permutations(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("spread", "skewed", "idle", "crowded"):
        yield routed_case(
            regime,
            tokens=drawn(generator, 20, 90),
            k=drawn(generator, 1, 4),
            experts=drawn(generator, 6, 12),
            packs=drawn(generator, 1, 40),
        )
    yield routed_case(tokens=3, k=2, experts=2, packs=drawn(generator, 257, 520))


def _layers(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("skewed", "idle", "summed"):
        yield routed_case(
            regime,
            tokens=drawn(generator, 10, 40),
            k=drawn(generator, 1, 4),
            experts=drawn(generator, 4, 7),
            d=8 * drawn(generator, 1, 6),
            f=drawn(generator, 2, 32),
        )


def _products(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("spread", "idle", "crowded", "behind", "special"):
        yield ragged_case(
            drawn(generator, 3, 9),
            drawn(generator, 100, 400),
            drawn(generator, 17, 80),
            drawn(generator, 20, 140),
            regime,
        )
    yield ragged_case(drawn(generator, 10, 14), 9, 20, 16)
    # More experts than columns, or steps along inner: neither counts them.
    yield ragged_case(drawn(generator, 10, 14), 90, 8, 5)


def _capacities(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("spread", "skewed", "idle", "crowded"):
        yield routed_case(
            regime,
            tokens=drawn(generator, 20, 200),
            k=drawn(generator, 1, 4),
            experts=drawn(generator, 6, 16),
            capacity=drawn(generator, 2, 60),
        )
    yield routed_case(tokens=40, k=3, experts=5, capacity=120)


HIDDEN = {
    "topk_gating": {"hidden": _gatings},
    "expert_offsets": {"hidden": _offsets},
    "permute_tokens": {"hidden": _permutations},
    "grouped_gemm": {"hidden": _products},
    "moe_layer": {"hidden": _layers},
    "dropped_tokens": {"hidden": _capacities},
}
