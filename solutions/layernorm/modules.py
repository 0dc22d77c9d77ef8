"""Drop-in modules: torch.nn's, with this family's kernels behind them."""

from __future__ import annotations

import torch

from solutions.layernorm.functional import layer_norm, rms_norm

__all__ = ["FusedLayerNorm", "LayerNorm", "RMSNorm"]


class LayerNorm(torch.nn.LayerNorm):
    """Normalise the last dimensions, as ``torch.nn.LayerNorm`` does.

    Takes its arguments, and keeps its parameters under the same names: a state_dict
    of either loads into the other.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the input normalised: its shape, dtype and device."""
        return layer_norm(
            input, self.normalized_shape, self.weight, self.bias, self.eps
        )


class RMSNorm(torch.nn.RMSNorm):
    """Divide the last dimensions by their root mean square, as ``torch.nn.RMSNorm``.

    Takes its arguments, and keeps its parameter under the same name.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x normalised: its shape, dtype and device."""
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)


class FusedLayerNorm(LayerNorm):
    """Normalise the last dimension, of ``dim`` elements.

    Args:
        dim: the length of a row.
        eps: added to the variance.
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(
        self,
        dim: int,
        eps: float = 1e-5,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(dim, eps=eps, device=device, dtype=dtype)
