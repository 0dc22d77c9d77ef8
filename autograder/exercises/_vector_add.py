"""What the exercises of chapter 1 share: cases, timing, and mixed-up operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from autograder.drawing import tensor, vector_case
from autograder.exercise import Arguments, Case, Count, NearMiss, Speed

STEM = "vector_add"
THREADS = 256
TIMED = 2**26  # floats: 268 MB an array, over four times the L2 of any GPU of today


def timed(bands: dict[str, float]) -> Speed:
    """Return the speed gate of a kernel that moves 12 bytes an element."""
    return Speed(
        peer="copy bandwidth",
        case=vector_case(TIMED),
        bytes_moved=lambda case: 12 * case.sizes["n"],  # x and y read, out written
        bands=bands,
    )


# A warp of 32 threads reads 32 neighbouring floats: 128 bytes, four 32-byte sectors.
COALESCED = tuple(
    Count("sectors_per_request", "global", op, at_most=4.5, ideal=4.0)
    for op in ("load", "store")
)
# A prime of several blocks first: there every known mistake shows a face of its own.
SIZES = (1009, 257, 255, 33, 31, 1, 0)
CASES = (
    *(vector_case(n) for n in SIZES),
    vector_case(1024, "zeros"),
    vector_case(1000, "large"),
    vector_case(515, "special"),
)


def hidden_lengths(
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
            return int(torch.randint(low, high, (), generator=generator))

        for regime in ("distinct", "special"):
            yield vector_case(draw(2, below), regime)
        yield vector_case(size * draw(*rounds) + draw(1, rest), "distinct")
        yield vector_case(size * draw(*rounds) - draw(1, rest), "zeros")
        yield vector_case(size * draw(*rounds), "large")
        yield vector_case(2 * draw(2_000, 10_000) + 1, "distinct")

    return hidden


def total(arguments: Arguments) -> torch.Tensor:
    """Return x + y in fp32."""
    return tensor(arguments, "x") + tensor(arguments, "y")


WRONG_OPERANDS = (
    NearMiss(
        "x twice",
        lambda arguments: {"out": 2 * tensor(arguments, "x")},
        "out is x + x: the second load reads x where y is wanted.",
    ),
    NearMiss(
        "subtracted",
        lambda arguments: {
            "out": tensor(arguments, "x") - tensor(arguments, "y"),
        },
        "out is x - y; wanted x + y.",
    ),
    NearMiss(
        "multiplied",
        lambda arguments: {
            "out": tensor(arguments, "x") * tensor(arguments, "y"),
        },
        "out is x * y; wanted x + y.",
    ),
)
