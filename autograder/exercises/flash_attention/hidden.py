"""What a release of chapter 9 leaves out: hidden cases, of awkward shapes."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import drawn
from autograder.exercise import Case
from autograder.exercises.flash_attention.attention_tile import tiled_case
from autograder.exercises.flash_attention.flash_causal import causal_case
from autograder.exercises.flash_attention.shared import case_of
from autograder.exercises.flash_attention.weigh_rows import rows_case


def _shapes(generator: torch.Generator) -> Iterator[Case]:
    """Draw shapes inside a tile, around several, rising, large, low."""
    yield case_of(drawn(generator, 2, 60), drawn(generator, 2, 15))
    q_len, kv_len = drawn(generator, 65, 120), drawn(generator, 65, 140)
    yield case_of(q_len, kv_len, heads=drawn(generator, 2, 4))
    yield case_of(drawn(generator, 5, 40), 16 * drawn(generator, 2, 8), "rising")
    yield case_of(drawn(generator, 5, 80), drawn(generator, 20, 90), "large")
    yield case_of(drawn(generator, 5, 40), drawn(generator, 17, 60), "low")


def _tiles(generator: torch.Generator) -> Iterator[Case]:
    for case in _shapes(generator):
        tile = drawn(generator, 1, 40)
        q_len, kv_len = case.sizes["q_len"], case.sizes["kv_len"]
        yield tiled_case(q_len, kv_len, tile, case.regime)


def _causal(generator: torch.Generator) -> Iterator[Case]:
    for case in _shapes(generator):
        sizes, more = case.sizes, drawn(generator, -8, 9)
        shape = sizes["q_len"], sizes["kv_len"]
        yield causal_case(*shape, case.regime, sizes["heads"], more)


def _rows(generator: torch.Generator) -> Iterator[Case]:
    yield rows_case(16 * drawn(generator, 1, 4), drawn(generator, 2, 60))
    yield rows_case(16, drawn(generator, 65, 190))
    yield rows_case(32, drawn(generator, 129, 250), "rising")
    yield rows_case(16, drawn(generator, 65, 128), "low")


def _halves(generator: torch.Generator) -> Iterator[Case]:
    for case in _shapes(generator):
        if case.regime not in ("large", "low"):
            yield case


def _queries(generator: torch.Generator) -> Iterator[Case]:
    for n, case in enumerate(_shapes(generator)):
        yield case_of(1 + n % 4, 1 + case.sizes["kv_len"], case.regime)


HIDDEN = {
    "attention_reference": {"hidden": _shapes},
    "attention_tile": {"hidden": _tiles},
    "flash_forward": {"hidden": _shapes},
    "flash_causal": {"hidden": _causal},
    "weigh_rows": {"hidden": _rows},
    "flash_wmma": {"hidden": _halves},
    "wrong_rescale": {"hidden": _queries},
}
