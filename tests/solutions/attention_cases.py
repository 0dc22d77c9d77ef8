"""What the tests of attention share: draws, options, and the exact answer."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from solutions.flash_attention import flash_attention

SDPA = torch.nn.functional.scaled_dot_product_attention
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
HALVES = (torch.float16, torch.bfloat16)
Heads = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def draw(
    q_len: int,
    kv_len: int,
    head_dim: int = 64,
    heads: tuple[int, int] = (4, 4),
    batch: int = 2,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
) -> Heads:
    generator = torch.Generator().manual_seed(q_len + kv_len + head_dim)
    shapes = [(batch, heads[0], q_len, head_dim)]
    shapes += 2 * [(batch, heads[1], kv_len, head_dim)]
    q, k, v = (torch.randn(s, generator=generator).to(device, dtype) for s in shapes)
    return q, k, v


def exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **told: Any) -> Any:
    """Attend in float64, by plain torch."""
    return flash_attention(*(t.double() for t in (q, k, v)), kernel="plain", **told)


def options_for(q_len: int, kv_len: int, device: str = "cpu") -> dict[str, dict]:
    generator = torch.Generator().manual_seed(3)
    seen = torch.rand(q_len, kv_len, generator=generator) < 0.7
    seen[:: max(2, q_len // 3)] = False  # queries that see nothing
    added = torch.randn(2, 1, q_len, kv_len, generator=generator)
    padding = torch.zeros(2, kv_len, dtype=torch.bool)
    padding[0, kv_len // 2 :] = True
    padding[1] = True  # a sequence of nothing but padding
    return {
        "plain": {},
        "causal": {"causal": True},
        "bottom-right": {"causal": "bottom-right"},
        "scale": {"scale": 0.3},
        "mask": {"mask": seen.to(device)},
        "added": {"mask": added.to(device)},
        "padding": {"key_padding_mask": padding.to(device)},
        "window": {"window": (5, 3)},
        "causal window": {"causal": True, "window": 7},
        "dropout": {"dropout_p": 0.3, "seed": 11},
        "all": {
            "mask": seen.to(device),
            "key_padding_mask": padding.to(device),
            "causal": True,
            "dropout_p": 0.2,
            "seed": 5,
        },
    }


NAMES = tuple(options_for(4, 4))
