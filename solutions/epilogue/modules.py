"""Drop-in modules: torch.nn's, with this family's kernels behind them."""

from __future__ import annotations

from typing import Any

import torch

from solutions.epilogue.activations import Activation, named
from solutions.epilogue.functions import conv2d_bias_act, gated_mlp, linear, mlp


class FusedLinear(torch.nn.Linear):
    """A linear layer with its activation, as ``torch.nn.Linear`` and a function of it.

    Keeps its parameters under torch's names: a state_dict of either loads into the
    other.

    Args:
        in_features: of x's last dimension.
        out_features: of the result's.
        bias: whether to add one.
        activation: ``relu``, ``silu``, ``gelu``, ``gelu_tanh`` or none.
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        activation: Activation | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        named("FusedLinear", activation)
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation

    def forward(
        self, input: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return ``activation(input weightᵀ + bias) + residual``."""
        return linear(input, self.weight, self.bias, self.activation, residual)

    def extra_repr(self) -> str:
        """Name the activation too."""
        return f"{super().extra_repr()}, activation={self.activation!r}"


class FusedMLP(torch.nn.Module):
    """Two linear layers with an activation, or Llama's gated form of them.

    Its layers are ``torch.nn.Linear``: ``up`` and ``down``, and ``gate`` if gated.

    Args:
        features: of x, and of the result.
        hidden: of the layer between.
        activation: ``gelu``, or ``silu`` if gated, when absent.
        gated: whether a second product gates the first; then without biases.
        recompute: compute in the backward pass again what it would else keep.
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        activation: Activation | None = None,
        gated: bool = False,
        recompute: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.activation: Activation = activation or ("silu" if gated else "gelu")
        named("FusedMLP", self.activation)
        self.recompute = recompute
        where: dict[str, Any] = {"bias": not gated, "device": device, "dtype": dtype}
        self.gate = torch.nn.Linear(features, hidden, **where) if gated else None
        self.up = torch.nn.Linear(features, hidden, **where)
        self.down = torch.nn.Linear(hidden, features, **where)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layers' result, of x's shape."""
        if self.gate is not None:
            return gated_mlp(
                x, self.gate.weight, self.up.weight, self.down.weight, self.activation,
                recompute=self.recompute,
            )  # fmt: skip
        return mlp(
            x, self.up.weight, self.up.bias, self.down.weight, self.down.bias,
            self.activation, recompute=self.recompute,
        )  # fmt: skip


class FusedConv2d(torch.nn.Conv2d):
    """A convolution with its activation, as ``torch.nn.Conv2d`` and a function of it.

    Takes what that takes, less dilation, groups and other paddings than zeros, and
    keeps its parameters under the same names.

    Args:
        in_channels: of x.
        out_channels: of the result.
        kernel_size: rows and columns.
        stride: pixels from one result to the next.
        padding: zeros around the image.
        bias: whether to add one.
        activation: ``relu``, ``silu``, ``gelu``, ``gelu_tanh`` or none.
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        bias: bool = True,
        activation: Activation | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        named("FusedConv2d", activation)
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, bias=bias,
            device=device, dtype=dtype,
        )  # fmt: skip
        self.activation = activation

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return ``activation(conv2d(input) + bias)``, channels last in memory."""
        stride: Any = self.stride
        padding: Any = self.padding
        return conv2d_bias_act(
            input, self.weight, self.bias, stride, padding, self.activation
        )

    def extra_repr(self) -> str:
        """Name the activation too."""
        return f"{super().extra_repr()}, activation={self.activation!r}"
