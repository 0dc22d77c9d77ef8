"""Hidden cases: awkward lengths, drawn from the secret seed."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import drawn
from autograder.exercise import Case
from autograder.exercises.transformer.compress_model import model_case
from autograder.exercises.transformer.generate import prompt_case
from autograder.exercises.transformer.misplaced_token import cached_case
from autograder.exercises.transformer.train_step import step_case
from autograder.exercises.transformer.transformer_block import block_case


def _blocks(generator: torch.Generator) -> Iterator[Case]:
    for kv_heads in (1, 2, 3):
        heads = kv_heads * drawn(generator, 1, 4)
        size = 2 * drawn(generator, 1, 6)
        yield block_case(
            drawn(generator, 3, 20), heads, kv_heads, size, drawn(generator, 3, 30)
        )


def _steps(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("distinct", "padded", "steep"):
        batch, length = drawn(generator, 1, 6), drawn(generator, 3, 12)
        sizes = drawn(generator, 5, 40), drawn(generator, 2, 9)
        yield step_case(batch, length, *sizes, drawn(generator, 1, 30), regime)


def _models(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("distinct", "zeros", "16 bits"):
        size = 2 * drawn(generator, 1, 8)
        rows, columns = size * drawn(generator, 1, 5), size * drawn(generator, 2, 6)
        yield model_case(rows, columns, size, regime)


def _prompts(generator: torch.Generator) -> Iterator[Case]:
    for regime in ("greedy", "drawn", "cool", "ended"):
        yield prompt_case(drawn(generator, 1, 20), drawn(generator, 5, 25), regime)


def _cached(generator: torch.Generator) -> Iterator[Case]:
    for start in (0, drawn(generator, 1, 5), drawn(generator, 6, 60)):
        new, spare = drawn(generator, 2, 9), drawn(generator, 0, 4)
        heads, size = drawn(generator, 1, 4), 2 * drawn(generator, 1, 5)
        yield cached_case(start, new, spare, heads, size)


HIDDEN = {
    "transformer_block": {"hidden": _blocks},
    "train_step": {"hidden": _steps},
    "compress_model": {"hidden": _models},
    "generate": {"hidden": _prompts},
    "misplaced_token": {"hidden": _cached},
}
