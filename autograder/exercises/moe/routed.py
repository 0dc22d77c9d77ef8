"""Which experts tokens have chosen: what several exercises of chapter 14 draw."""

from __future__ import annotations

import torch

from autograder.exercise import Case

_REGIMES = {
    "spread": "spread evenly",
    "skewed": "some experts far more popular",
    "idle": "every other expert without a token",
    "crowded": "all tokens to the same experts",
    "summed": "the gradient of a sum (one number, with strides of 0)",
}


def routed_case(regime: str = "spread", **sizes: int) -> Case:
    """Return a case of some sizes, named as the learner reads it."""
    named = ", ".join(f"{name} = {size:,}" for name, size in sizes.items())
    return Case(f"{named}, {_REGIMES[regime]}", sizes, regime)


def draw_chosen(
    case: Case, generator: torch.Generator, tokens: int, k: int
) -> torch.Tensor:
    """Draw (tokens, k) experts, int32; those of a token differ."""
    experts = case.sizes["experts"]
    liking = torch.rand(tokens, experts, generator=generator)
    if case.regime == "skewed":
        liking *= torch.linspace(1, 0.3, experts)
    elif case.regime == "idle":
        liking[:, ::2] = -1.0
    elif case.regime == "crowded":
        middle = (experts - k) // 2
        liking[:, middle : middle + k] += 1.0
    return liking.topk(k).indices.int()
