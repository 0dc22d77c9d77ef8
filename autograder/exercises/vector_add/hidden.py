"""Hidden cases of chapter 1: awkward lengths, drawn from the secret seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from autograder.drawing import drawn, vector_case
from autograder.exercise import Case
from autograder.exercises.vector_add.saxpy_grid_stride import launched_case
from autograder.exercises.vector_add.shared import THREADS


def _add_one(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("distinct", "special", "large"):
        yield vector_case(drawn(generator, 100, 3000), regime)


def _lengths(
    size: int = THREADS,
    *,
    below: int = 64,
    rounds: tuple[int, int] = (1, 8),
    rest: int = 4,
) -> Callable[[torch.Generator], Iterator[Case]]:
    """Return what draws awkward lengths, around a round of elements and far past it.

    Args:
        size: elements of a round: a block, or all threads of a fixed launch.
        below: two cases are shorter than this.
        rounds: how many rounds the longer ones have, the last number left out.
        rest: how many elements more or less, likewise.
    """

    def hidden(generator: torch.Generator) -> Iterator[Case]:
        def draw(low: int, high: int) -> int:
            return drawn(generator, low, high)

        for regime in ("distinct", "special"):
            yield vector_case(draw(2, below), regime)
        yield vector_case(size * draw(*rounds) + draw(1, rest), "distinct")
        yield vector_case(size * draw(*rounds) - draw(1, rest), "zeros")
        yield vector_case(size * draw(*rounds), "large")
        yield vector_case(2 * draw(2_000, 10_000) + 1, "distinct")

    return hidden


def _many_programs(generator: torch.Generator) -> Iterator[Case]:
    """Draw the usual lengths, and one of more blocks than a block has elements."""
    yield from _lengths()(generator)
    yield vector_case(2**20 + drawn(generator, 1, 1024))


def _launched(generator: torch.Generator) -> Iterator[Case]:
    """Draw lengths for the usual 96 threads, and another launch."""
    # Fewer than the 96 threads, whole rounds of them, and a few more or less.
    yield from _lengths(96, below=96, rounds=(2, 20), rest=32)(generator)
    n, blocks, threads = (drawn(generator, *r) for r in ((97, 3000), (1, 9), (2, 65)))
    yield launched_case(n, blocks, threads)


HIDDEN = {
    "add_one": {"hidden": _add_one},
    "vector_add": {"hidden": _lengths()},
    "saxpy_grid_stride": {"hidden": _launched},
    "scale_offset": {"hidden": _launched},
    "vector_add_triton": {"hidden": _many_programs},
    "vector_add_vec4": {"hidden": _lengths()},
}
