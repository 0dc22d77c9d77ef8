"""Hidden cases: awkward lengths and pauses, drawn from the secret seed."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import drawn
from autograder.exercise import Case
from autograder.exercises.streaming_fpga.shared import stream_case

_ALL = ("flowing", "pauses", "blocked", "starved")


def _sums(generator: torch.Generator) -> Iterator[Case]:
    for regime in _ALL:
        n, width = drawn(generator, 2, 50), drawn(generator, 3, 13)
        yield stream_case(regime, n=n, width=width, each=drawn(generator, 1, 12))


def _weights(generator: torch.Generator) -> Iterator[Case]:
    for regime in _ALL:
        n, bits = drawn(generator, 10, 60), drawn(generator, 16, 23)
        yield stream_case(regime, n=n, bits=bits, each=drawn(generator, 1, 30))


def _heads(generator: torch.Generator) -> Iterator[Case]:
    for regime in _ALL:
        queries, keys = drawn(generator, 2, 5), drawn(generator, 1, 12)
        yield stream_case(regime, queries=queries, keys=keys, d=4)


def _values(generator: torch.Generator) -> Iterator[Case]:
    for regime in _ALL:
        yield stream_case(regime, n=drawn(generator, 2, 50))


HIDDEN = {
    "streaming_mac": {"hidden": _sums},
    "max_rescale_unit": {"hidden": _weights},
    "streaming_attention": {"hidden": _heads},
    "latency_mismatch": {"hidden": _values},
}
