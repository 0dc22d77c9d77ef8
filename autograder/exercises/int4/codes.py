"""Codes of four bits, eight a word, the first in the lowest bits."""

from __future__ import annotations

import torch

from autograder.exercise import Case

ORDER = "Code k of a word has bits 4 k to 4 k + 3: the first code has the lowest four."


def codes_case(words: int, zero: int | None = None) -> Case:
    """Return a case of whole words; with the code that stands for 0, where asked."""
    count, sizes = 8 * words, {"words": words}
    if zero is None:
        return Case(f"count = {count}", sizes)
    return Case(f"count = {count}, zero = {zero}", {**sizes, "zero": zero})


def draw_codes(case: Case, generator: torch.Generator) -> torch.Tensor:
    """Draw eight codes for each word of a case."""
    shape = (case.sizes["words"], 8)
    return torch.randint(0, 16, shape, generator=generator, dtype=torch.uint8)


def packed(codes: torch.Tensor) -> torch.Tensor:
    """Return the words of codes, (words, 8), as int32."""
    powers = 16 ** torch.arange(8)
    words = (codes.long() * powers).sum(1)
    return torch.where(words < 2**31, words, words - 2**32).int()
