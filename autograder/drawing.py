"""Drawing an exercise's values."""

from __future__ import annotations

import torch

from autograder.exercise import Arguments, Case

_REGIMES = {
    "distinct": "normal values",
    "zeros": "a third of them zero",
    "large": "values near 1e37",
    "special": "NaN and Inf among them",
}


def drawn(generator: torch.Generator, low: int, high: int) -> int:
    """Draw a whole number from low to below high."""
    return int(torch.randint(low, high, (), generator=generator))


def vector_case(n: int, regime: str = "distinct") -> Case:
    """Return a case of one length, named as the learner reads it."""
    return Case(f"n = {n:,}, {_REGIMES[regime]}", {"n": n}, regime)


def draw_vector(case: Case, generator: torch.Generator) -> torch.Tensor:
    """Draw ``n`` floats in the case's regime; two draws differ at every place."""
    n = case.sizes["n"]
    x = torch.randn(n, generator=generator)
    if case.regime == "zeros":
        x[torch.rand(n, generator=generator) < 1 / 3] = 0.0
    elif case.regime == "large":
        x = x.clamp(-4, 4) * 1e37  # sums stay below the largest float, 3.4e38
    elif case.regime == "special":
        for start, value in enumerate((torch.nan, torch.inf, -torch.inf, -0.0)):
            x[start::11] = value
    return x


def draw_pair(
    case: Case, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw two vectors; NaN and Inf of the one meet numbers of the other."""
    return draw_vector(case, generator), draw_vector(case, generator).roll(5)


def tensor(arguments: Arguments, name: str) -> torch.Tensor:
    """Return an argument that is a tensor."""
    value = arguments[name]
    assert isinstance(value, torch.Tensor)
    return value


def rounded(arguments: Arguments, name: str) -> float:
    """Return a scalar as a kernel gets it: rounded to fp32."""
    value = arguments[name]
    assert isinstance(value, int | float)
    return float(torch.tensor(value, dtype=torch.float32))
