"""Layers for existing programs: attention, norms and a profiler, by their usual names.

They are the course's own, from chapters 9, 5 and 3. Programs that are written for
NeuroFlux find its names here: attention of one head's q, k and v, without projections,
and ``NeuroProfiler``. Its usage example, with sizes of ours::

    attention_layer = FlashAttention(embed_dim=1024, num_heads=16).cuda()
    norm_layer = FusedLayerNorm(64).cuda()

    q = torch.randn(1024, 64).cuda()
    k = torch.randn(1024, 64).cuda()
    v = torch.randn(1024, 64).cuda()

    profiler = NeuroProfiler()

    with profiler.record("inference"):
        x = attention_layer(q, k, v)
        output = norm_layer(x)

    profiler.summary()

There ``FusedLayerNorm(1024)`` meets rows of 64, which torch's layer norm refuses, and
ours does as well; 64 is what a head of 1024 / 16 has.
"""

from __future__ import annotations

from typing import Any

import torch

from kernelwright import Profiler
from solutions.flash_attention import FlashAttention as SelfAttention
from solutions.flash_attention import flash_attention
from solutions.layernorm import FusedLayerNorm

__all__ = ["FlashAttention", "FusedLayerNorm", "NeuroProfiler", "Profiler"]

NeuroProfiler = Profiler


class FlashAttention(SelfAttention):
    """Attend as ``nn.MultiheadAttention``; or plainly, from heads that are there.

    Args:
        embed_dim: of the model; a multiple of num_heads.
        num_heads: heads, of embed_dim / num_heads elements each.
        further: as ``solutions.flash_attention.FlashAttention`` has them.
    """

    def forward(self, query: torch.Tensor, *given: Any, **named: Any) -> Any:
        """Attend.

        Args:
            query: a sequence, as ``nn.MultiheadAttention`` takes it; or (length,
                head_dim), one head's queries, with keys and values of its form behind.
            given: see there.
            named: see there.

        Returns:
            A pair of the attended sequence and None; of one head, (length, head_dim).
        """
        size = self.embed_dim // self.num_heads
        plain = len(given) == 2 and size != self.embed_dim and not named
        if plain and all(t.dim() == 2 and t.shape[1] == size for t in (query, *given)):
            heads = (t[None, None] for t in (query, *given))
            return flash_attention(*heads, kernel=self.kernel)[0, 0]
        return super().forward(query, *given, **named)
