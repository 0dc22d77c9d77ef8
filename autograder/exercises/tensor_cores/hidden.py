"""Hidden cases of chapter 7: whole tiles, few of them, since emulation is slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from autograder.drawing import drawn
from autograder.exercise import Case
from autograder.exercises.tensor_cores.shared import product_case
from autograder.exercises.tensor_cores.swizzle import copy_case


def _products(
    block: tuple[int, int], depth: int, steps: int
) -> Callable[[torch.Generator], Iterator[Case]]:
    """Return what draws shapes of whole tiles.

    Args:
        block: rows and columns of C a block.
        depth: what k is a multiple of.
        steps: the most of them.
    """

    def hidden(generator: torch.Generator) -> Iterator[Case]:
        down, across = block
        k = depth * drawn(generator, 2, steps + 1)
        yield product_case(down, across * 2, k)
        k = depth * drawn(generator, 1, 3)
        yield product_case(down * 2, across, k, "large")
        k = depth * drawn(generator, 2, steps + 1)
        yield product_case(down, across, k, "special")

    return hidden


def _copies(generator: torch.Generator) -> Iterator[Case]:
    yield copy_case(drawn(generator, 2, 6))
    yield copy_case(1, "special")


HIDDEN = {
    "wmma_tile": {"hidden": _products((16, 16), 16, 9)},
    "wmma_gemm": {"hidden": _products((128, 128), 64, 3)},
    "swizzle": {"hidden": _copies},
    "mma_sync_gemm": {"hidden": _products((128, 128), 64, 3)},
    "gemm_pipelined": {"hidden": _products((128, 128), 64, 5)},
    "stale_stage": {"hidden": _products((128, 128), 64, 5)},
    "gemm_half": {"hidden": _products((128, 256), 64, 4)},
}
