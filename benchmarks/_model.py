"""A transformer of this course's functions, to be compiled as a whole."""

from __future__ import annotations

import torch

from solutions.flash_attention import flash_attention
from solutions.layernorm import LayerNorm, RMSNorm
from solutions.matmul import matmul
from solutions.softmax import softmax
from solutions.tensor_cores import gemm


class Layer(torch.nn.Module):
    """Attention and a gated block, each behind a norm.

    Args:
        width: of the model.
        heads: of the attention, each width / heads wide.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = LayerNorm(width), RMSNorm(width)
        shapes = {"qkv": 3 * width, "out": width, "up": 4 * width}
        for name, columns in shapes.items():
            drawn = torch.randn(width, columns) / width**0.5
            self.register_parameter(name, torch.nn.Parameter(drawn))
        self.down = torch.nn.Parameter(torch.randn(4 * width, width) / 2 / width**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what goes to the next layer, of x's shape."""
        batch, length, width = x.shape
        packed = product(self.first(x), self.qkv)
        q, k, v = packed.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = flash_attention(q, k, v, causal=True)
        x = x + product(seen.transpose(1, 2).reshape(batch, length, width), self.out)
        gate = torch.nn.functional.silu(product(self.second(x), self.up))
        return x + product(gate, self.down)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply, on the tensor cores where the dtype is theirs."""
    return gemm(a, b) if a.dtype == torch.bfloat16 else matmul(a, b)


class Model(torch.nn.Module):
    """Layers, and a softmax on top.

    Args:
        layers: how many.
        width, heads: as ``Layer`` has them.
    """

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(width, heads) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return shares of 1 along the width."""
        for layer in self.layers:
            x = layer(x)
        return softmax(x)
