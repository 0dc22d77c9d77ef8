"""The models that are trained on two GPUs: a transformer, and the MLP of a Llama."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

HEAD_DIM = 16


class Block(nn.Module):
    """Attention and an MLP, each behind a norm."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.head_dim = 128 if d_model % 128 == 0 else HEAD_DIM
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(2))
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (batch, length, d_model)."""
        first, second = self.norms
        heads = self.qkv(first(x)).unflatten(-1, (3, -1, self.head_dim))
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        made: torch.Tensor = x + self.down(F.gelu(self.up(second(x))))
        return made


class Transformer(nn.Module):
    """Blocks alone: embeddings would make the first bucket large for both."""

    def __init__(self, layers: int, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(d_model, d_ff) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (batch, length, d_model)."""
        for block in self.blocks:
            x = block(x)
        return x


class GatedMLP(nn.Module):
    """SwiGLU on one GPU, with gate and up in one product."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate_up = nn.Linear(d_model, 2 * d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x's shape."""
        gate, up = self.gate_up(x).chunk(2, -1)
        made: torch.Tensor = self.down(F.silu(gate) * up)
        return made
