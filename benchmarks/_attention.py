"""What chapters 9 and 10 time attention with: its tensors, its formula, torch's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from solutions.flash_attention_triton.options import Causal, Options, read_options

Heads = Sequence[torch.Tensor]
"""q, k and v: (batch, heads, length, head_dim)."""


def draw(
    *shape: int, count: int = 3, dtype: torch.dtype = torch.bfloat16
) -> list[torch.Tensor]:
    """Draw normal tensors on the GPU."""
    return [torch.randn(shape, device="cuda").to(dtype) for _ in range(count)]


def standard(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend as the formula says, with the matrix of scores."""
    return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1) @ v


def sdpa(
    backend: SDPBackend | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    **options: Any,
) -> torch.Tensor:
    """Call torch's attention, pinned to one of its libraries where one is named."""
    if backend is None:
        return F.scaled_dot_product_attention(q, k, v, **options)
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, **options)


def options_of(heads: Heads, causal: Causal) -> Options:
    """Return the options of attention that has none but a causal mask."""
    q, k, v = heads
    return read_options(
        q, k, v, mask=None, key_padding_mask=None, causal=causal, scale=None,
        window=None, dropout_p=0.0, seed=None,
    )  # fmt: skip
