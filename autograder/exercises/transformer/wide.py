"""What the exercises in float64 share.

**Tolerance.** Numbers are float64, so that a step of many operations can be held to its
value and not to its rounding: sums of up to some hundred terms, a softmax and a norm
behind each other lose less than four digits of sixteen. The bound is 2^13 eps of the
largest number of each output, and float32 anywhere misses it by four digits more.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from autograder.exercise import Arguments, Outputs, Tolerance

PRELUDE = "import torch\nimport torch.nn.functional as F\n\nimport kernelwright as kw\n"


def normal(generator: torch.Generator, *shape: int, scale: float = 1.0) -> torch.Tensor:
    """Draw float64 from a normal distribution."""
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64)


def near(reference: Callable[[Arguments], Outputs]) -> Tolerance:
    """Allow 2^13 eps of each output's largest number."""

    def largest(arguments: Arguments) -> Outputs:
        made = reference(arguments)
        return {
            name: torch.full_like(t, float(t.abs().max()) if t.numel() else 0.0)
            for name, t in made.items()
        }

    return Tolerance(2.0**13, scale=largest)
