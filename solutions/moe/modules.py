"""A layer of experts, of which each token takes k."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from solutions.moe.functions import load_balance_loss, moe_mlp, route


class MoE(torch.nn.Module):
    """A gated MLP of many experts: a router, and k of them for each token.

    Args:
        d_model: numbers of a token.
        d_ff: numbers of an expert's hidden layer.
        experts: how many there are.
        k: how many a token takes.
        capacity_factor: an expert takes at most this times its fair share of tokens,
            ``capacity_factor * tokens * k / experts``; later ones are dropped, and add
            nothing to the result. Dropless when absent.
        renormalize: weigh the k by shares of their own sum.
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        experts: int,
        k: int,
        *,
        capacity_factor: float | None = None,
        renormalize: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("d_model", d_model), ("d_ff", d_ff), ("experts", experts)):
            if value < 1:
                raise ValueError(f"MoE: {name} is {value}; wanted 1 or more.")
        if not 1 <= k <= experts:
            raise ValueError(f"MoE: k is {k}; wanted 1 to {experts}, the experts.")
        if capacity_factor is not None and capacity_factor <= 0:
            raise ValueError(
                f"MoE: capacity_factor is {capacity_factor}; wanted more than 0."
            )
        self.d_model, self.d_ff, self.experts, self.k = d_model, d_ff, experts, k
        self.capacity_factor, self.renormalize = capacity_factor, renormalize
        self.router = torch.nn.Parameter(
            torch.empty(experts, d_model, device=device, dtype=dtype)
        )
        self.gate_up = torch.nn.Parameter(
            torch.empty(experts, 2 * d_ff, d_model, device=device, dtype=dtype)
        )
        self.down = torch.nn.Parameter(
            torch.empty(experts, d_model, d_ff, device=device, dtype=dtype)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw each matrix as ``torch.nn.Linear`` draws its own."""
        for matrix in self.parameters():
            bound = 1 / math.sqrt(matrix.shape[-1])
            torch.nn.init.uniform_(matrix, -bound, bound)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what experts make of x: (..., d_model)."""
        return self._routed(x)[0]

    def with_balance(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the same, and the load balance loss to train the router by."""
        out, logits, chosen = self._routed(x)
        return out, load_balance_loss(logits, chosen)

    def _routed(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the result, the router's logits and the experts chosen."""
        if x.dim() < 1 or x.shape[-1] != self.d_model:
            raise ValueError(
                f"MoE: x has shape {tuple(x.shape)}; wanted (..., {self.d_model})."
            )
        flat = x.reshape(math.prod(x.shape[:-1]), self.d_model)
        logits = F.linear(flat, self.router)
        weights, chosen = route(logits, self.k, renormalize=self.renormalize)
        out = moe_mlp(
            flat, weights, chosen, self.gate_up, self.down, self._capacity(len(flat))
        )
        return out.view(x.shape), logits, chosen

    def _capacity(self, tokens: int) -> int | None:
        if self.capacity_factor is None:
            return None
        return math.ceil(self.capacity_factor * tokens * self.k / self.experts)

    def extra_repr(self) -> str:
        """Name the sizes."""
        return (
            f"d_model={self.d_model}, d_ff={self.d_ff}, experts={self.experts}, "
            f"k={self.k}"
        )
