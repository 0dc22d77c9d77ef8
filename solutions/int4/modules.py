"""A drop-in for ``torch.nn.Linear`` whose weight takes a quarter of bf16's bytes."""

from __future__ import annotations

import torch

from solutions.int4.functions import linear
from solutions.int4.layout import Packed, pack
from solutions.int4.quantization import quantize


class Int4Linear(torch.nn.Module):
    """A linear layer with a weight of four bits, which is not trained.

    Its words, scales and zeros are buffers: they move with ``to``, and stand in the
    state_dict. The bias is a parameter.

    Args:
        packed: the weight.
        bias: (rows), or none.
    """

    words: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    bias: torch.nn.Parameter | None

    def __init__(self, packed: Packed, bias: torch.Tensor | None = None) -> None:
        super().__init__()
        self.out_features, self.in_features = packed.rows, packed.columns
        self.group_size = packed.group_size
        for name in ("words", "scales", "zeros"):
            self.register_buffer(name, getattr(packed, name))
        kept = None if bias is None else torch.nn.Parameter(bias.detach().clone())
        self.register_parameter("bias", kept)

    @classmethod
    def from_linear(
        cls, module: torch.nn.Linear, group_size: int = 128, symmetric: bool = True
    ) -> Int4Linear:
        """Quantize and pack a layer's weight; its bias is copied.

        Args:
            module: on the CPU or a GPU, where the result will be.
            group_size: columns that share a scale.
            symmetric: as for ``quantize``.
        """
        packed = pack(quantize(module.weight, group_size, symmetric))
        return cls(packed, module.bias)

    @property
    def packed(self) -> Packed:
        """The weight, as ``linear`` takes it."""
        sizes = self.out_features, self.in_features, self.group_size
        return Packed(self.words, self.scales, self.zeros, *sizes)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return ``input weightᵀ + bias``."""
        return linear(input, self.packed, self.bias)

    def extra_repr(self) -> str:
        """Name the sizes, as ``torch.nn.Linear`` does."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, group_size={self.group_size}"
        )
