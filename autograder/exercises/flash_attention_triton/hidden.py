"""Hidden cases of chapter 10: awkward lengths, drawn from the secret seed."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import drawn
from autograder.exercise import Case
from autograder.exercises.flash_attention_triton.cache import decode_case
from autograder.exercises.flash_attention_triton.shared import attention_case


def _forward(generator: torch.Generator) -> Iterator[Case]:
    yield attention_case(drawn(generator, 65, 128), 32, regime="growing")
    yield attention_case(drawn(generator, 2, 64), 64, heads=2)
    yield attention_case(drawn(generator, 129, 190), 16, regime="large")


def _backward(generator: torch.Generator, heads: int = 1) -> Iterator[Case]:
    n = drawn(generator, 65, 128)
    yield attention_case(n, 32, heads=heads, regime="growing")
    yield attention_case(drawn(generator, 2, 64), 16, heads=2)


def _grouped(generator: torch.Generator) -> Iterator[Case]:
    n = drawn(generator, 2, 70)
    more = drawn(generator, 1, 60)
    yield attention_case(n, 32, heads=6, kv_heads=2, keys=n + more)
    n, keys = drawn(generator, 65, 100), drawn(generator, 100, 140)
    yield attention_case(n, 16, heads=3, kv_heads=1, keys=keys)


def _decode(generator: torch.Generator) -> Iterator[Case]:
    capacity = drawn(generator, 100, 250)
    yield decode_case(2 * capacity, 32, 6, 2, "full")
    yield decode_case(capacity, 32, 6, 2)
    yield decode_case(drawn(generator, 5, 60), 16, 3, 1)


def _fast(generator: torch.Generator) -> Iterator[Case]:
    n = drawn(generator, 129, 250)
    yield attention_case(n, 64, regime="growing")
    yield attention_case(n // 3, 128, heads=2)


HIDDEN = {
    "absorb_tile": {"hidden": _forward},
    "flash_triton": {"hidden": _forward},
    "flash_triton_causal": {"hidden": _forward},
    "tile_gradients": {"hidden": lambda generator: _backward(generator, heads=3)},
    "flash_backward": {"hidden": _backward},
    "flash_gqa": {"hidden": _grouped},
    "decode_pieces": {"hidden": _decode},
    "decode_split_kv": {"hidden": _decode},
    "flash_fast": {"hidden": _fast},
}
