"""What the exercises of chapter 3 share: a practice GPU, and what it is told.

An answer measures a practice GPU, whose durations and allocations the supervisor
draws: the right number is known, and every known lie gives another. float32 results are
differences of times in fp64, rounded once: a factor of 1 is twice what they need.
"""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, Case, Structure

# What the practice GPU was told is there to be found; a real one was told nothing.
MEASURED = Structure(
    lacks=("launch.cold_ms", "launch.warm_ms", "old.cold_ms", "new.cold_ms", "gpu.log"),
    message="The number is right, and it was read off what the practice GPU had been "
    "told. A real one was told nothing: launch, and measure.",
)


def prelude(adapter: str) -> str:
    """Return the chapter's imports, and what stands between answer and grader."""
    return (
        "import statistics\nfrom contextlib import contextmanager\n\n"
        "import torch\n\nimport kernelwright as kw\n"
        f"from autograder.worker.adapters.practice import {adapter} as __adapt__\n"
    )


def whole(arguments: Arguments, name: str) -> int:
    """Return an argument that is a whole number."""
    value = arguments[name]
    assert isinstance(value, int)
    return value


def timer_case(warm_up: int, samples: int) -> Case:
    """Return a case by how many launches are discarded and timed."""
    name = f"{warm_up} to warm up, {samples} sample{'s' if samples > 1 else ''}"
    return Case(name, {"warm_up": warm_up, "samples": samples})


def durations(
    count: int, warm_up: int, base: float, generator: torch.Generator
) -> torch.Tensor:
    """Draw what each launch takes in ms: slow at first, jitter, a hitch at times."""
    times = base * (1 + 0.04 * torch.rand(count, generator=generator).double())
    times[:warm_up] *= 2 + torch.rand(warm_up, generator=generator).double()
    hitch = torch.rand(count, generator=generator) < 0.2
    hitch[:warm_up] = False
    times[hitch] *= 3 + torch.rand(int(hitch.sum()), generator=generator).double()
    return times


def taken(arguments: Arguments, name: str) -> list[float]:
    """Return what the launches took that are to be timed, in float64."""
    first = whole(arguments, "warm_up")
    last = first + whole(arguments, "samples")
    found: list[float] = tensor(arguments, name).double()[first:last].tolist()
    return found
