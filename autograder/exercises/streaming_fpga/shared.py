"""Streams with pauses, and fixed point: what the exercises of chapter 17 draw."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.exercise import Arguments, Case, Outputs, Tolerance

PRELUDE = (
    "from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned\n"
    "from amaranth.lib import data, memory, stream, wiring\n"
    "from amaranth.lib.wiring import In, Out\n"
)
ONE = 65536  # a weight of 1
_REGIMES = {
    "flowing": "no pauses",
    "pauses": "pauses on both sides",
    "blocked": "the outside rarely takes",
    "starved": "the outside rarely gives",
    "polite": "the outside is ready only once it has seen valid",
}
# How often the outside gives and takes, in percent of cycles.
_OFTEN = {"flowing": (100, 100), "pauses": (50, 50), "blocked": (100, 20),
          "starved": (20, 100)}  # fmt: skip


def stream_case(regime: str = "flowing", **sizes: int) -> Case:
    """Return a case of some sizes, named as the learner reads it."""
    named = ", ".join(f"{name} = {size:,}" for name, size in sizes.items())
    return Case(f"{named}, {_REGIMES[regime]}", sizes, regime)


def pauses(
    case: Case, generator: torch.Generator, *inputs: str, cycles: int
) -> dict[str, torch.Tensor]:
    """Draw in which cycles the outside has an item for each input, and room."""
    if case.regime == "flowing":
        return {}
    if case.regime == "polite":
        return {"out.ready": torch.full((3 * cycles,), 2, dtype=torch.int32)}
    gives, takes = _OFTEN[case.regime]
    drawn = torch.randint(0, 100, (len(inputs) + 1, cycles), generator=generator)
    made = {f"{name}.valid": drawn[i] < gives for i, name in enumerate(inputs)}
    made["out.ready"] = drawn[-1] < takes
    return {name: pace.int() for name, pace in made.items()}


def codes(
    generator: torch.Generator, *shape: int, width: int = 8
) -> torch.Tensor:  # fmt: skip
    """Draw signed codes of all the width has."""
    top = 2 ** (width - 1)
    return torch.randint(-top, top, shape, generator=generator)


def sequences(last: torch.Tensor) -> Iterator[slice]:
    """Give the places of each sequence; its end is marked."""
    begin = 0
    for end in last.nonzero()[:, 0].tolist():
        yield slice(begin, end + 1)
        begin = end + 1
    if begin < len(last):
        yield slice(begin, len(last))


def ceilings(scores: torch.Tensor) -> torch.Tensor:
    """Return the whole number at or above each score of 8 fraction bits."""
    return -((-scores) // 256)


def weight_bound(gaps: torch.Tensor) -> torch.Tensor:
    """Bound a weight's error, in steps of 2^-16: the table's rounding, and the cut."""
    places = (gaps // 256).clamp(max=31).double()
    return 0.5 * 2.0**-places + (places > 0)


def within(bounds: Outputs) -> Outputs:
    """Return scales of float64 with which a tolerance of factor 1 is these bounds."""
    return {
        name: bound / torch.finfo(torch.float64).eps for name, bound in bounds.items()
    }


def bounded(bound: object) -> Tolerance:
    """Return the tolerance whose bound follows from the arguments."""
    assert callable(bound)

    def scale(arguments: Arguments) -> Outputs:
        return within(bound(arguments))

    return Tolerance(factor=1.0, scale=scale)
