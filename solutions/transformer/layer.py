"""One layer of a Llama-style transformer, each of its operations exchangeable."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from solutions.epilogue import gated_mlp
from solutions.epilogue import linear as linear_with_residual
from solutions.flash_attention import decode_attention, flash_attention
from solutions.int4 import Int4Linear
from solutions.layernorm import rms_norm
from solutions.moe import MoE
from solutions.transformer.cache import KVCache
from solutions.transformer.decoding import gated
from solutions.transformer.operations import Operations
from solutions.transformer.rotary import append, rotate, rotate_plain

DECODED = 16
"""Tokens at once that the decoding kernel takes."""


class Norm(nn.Module):
    """RMSNorm: ``x / sqrt(mean of x² + eps) * weight``."""

    def __init__(
        self, d_model: int, eps: float, operations: Operations,
        device: torch.device | str | None, dtype: torch.dtype | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model, device=device, dtype=dtype))
        self.eps, self.operations = eps, operations

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x normalised, (..., d_model)."""
        norm = rms_norm if self.operations.norm == "ours" else F.rms_norm
        return norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    """Causal self-attention with grouped heads and rotary embedding."""

    def __init__(
        self, d_model: int, heads: int, kv_heads: int, base: float, reach: int,
        operations: Operations, device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:  # fmt: skip
        super().__init__()
        if heads < 1 or d_model % (2 * heads) or kv_heads < 1 or heads % kv_heads:
            raise ValueError(
                f"TransformerLayer: d_model {d_model}, heads {heads}, kv_heads "
                f"{kv_heads}; wanted d_model a multiple of 2 heads, and heads of "
                "kv_heads."
            )
        head_dim = d_model // heads
        wide = (heads + 2 * kv_heads) * head_dim
        how = {"bias": False, "device": device, "dtype": dtype}
        self.joined = nn.Linear(d_model, wide, **how)  # type: ignore[arg-type]
        self.out = nn.Linear(d_model, d_model, **how)  # type: ignore[arg-type]
        self.heads, self.kv_heads, self.base, self.reach = heads, kv_heads, base, reach
        self.operations = operations

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor, positions: torch.Tensor,
        cache: KVCache | None, layer: int,
    ) -> torch.Tensor:  # fmt: skip
        """Attend from x, (batch, length, d_model), and add the residual."""
        attended = self.attend(self.joined(x), positions, cache, layer)
        weight = self.out.weight if isinstance(self.out, nn.Linear) else None
        if self.operations.output == "ours" and weight is not None:
            return linear_with_residual(attended, weight, residual=residual)
        return residual + self.out(attended)

    def attend(
        self, joined: torch.Tensor, positions: torch.Tensor, cache: KVCache | None,
        layer: int,
    ) -> torch.Tensor:  # fmt: skip
        """Return what heads attended to, side by side: (batch, length, d_model)."""
        batch, length, _ = joined.shape
        ours = self.operations.rotary == "ours"
        if cache is not None and ours and joined.is_cuda:
            keys, values = cache.keys[layer], cache.values[layer]
            q = append(joined, positions, self.heads, self.base, keys, values)
        else:
            turn = rotate if ours else rotate_plain
            how = self.heads, self.kv_heads, self.base, self.reach
            q, k, v = turn(joined, positions, *how)
            if cache is not None:
                keys, values = cache.keys[layer], cache.values[layer]
                place = positions[0].long()  # every sequence's are the same
                keys.index_copy_(2, place, k)
                values.index_copy_(2, place, v)
        if cache is None:
            out = self._full(q, k, v)
        else:
            out = self._cached(q, keys, values, cache)
        return out.transpose(1, 2).reshape(batch, length, -1)

    def _full(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self.operations.attention == "ours":
            return flash_attention(q, k, v, causal=True)
        grouped = self.kv_heads < self.heads
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=grouped
        )

    def _cached(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, cache: KVCache
    ) -> torch.Tensor:
        """Attend over the cache; its length on the host does not count q's tokens."""
        new = q.shape[2]
        if self.operations.decode == "ours" and new <= DECODED:
            return decode_attention(q, keys, values, cache.lengths + new)
        end = cache.length + new
        k, v = keys[:, :, :end], values[:, :, :end]
        if self.operations.attention == "ours":
            first = new == end  # Hopper's kernels know this form
            return flash_attention(q, k, v, causal=True if first else "bottom-right")
        seen = torch.ones(new, end, dtype=torch.bool, device=q.device)
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=seen.tril(cache.length),
            enable_gqa=self.kv_heads < self.heads,
        )  # fmt: skip


class GatedMLP(nn.Module):
    """SwiGLU: ``(silu(x gateᵀ) * (x upᵀ)) downᵀ``."""

    def __init__(
        self, d_model: int, d_ff: int, operations: Operations,
        device: torch.device | str | None, dtype: torch.dtype | None,
    ) -> None:  # fmt: skip
        super().__init__()
        how = {"bias": False, "device": device, "dtype": dtype}
        self.gate = nn.Linear(d_model, d_ff, **how)  # type: ignore[arg-type]
        self.up = nn.Linear(d_model, d_ff, **how)  # type: ignore[arg-type]
        self.down = nn.Linear(d_ff, d_model, **how)  # type: ignore[arg-type]
        self.operations = operations

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's result, (..., d_model)."""
        if self.operations.mlp == "ours":
            return gated_mlp(x, self.gate.weight, self.up.weight, self.down.weight)
        out: torch.Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return out


class Int4MLP(nn.Module):
    """A gated MLP with weights of four bits, gate and up in one product."""

    def __init__(self, both: Int4Linear, down: Int4Linear) -> None:
        super().__init__()
        self.both, self.down = both, down

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's result, (..., d_model)."""
        out: torch.Tensor = self.down(gated(self.both(x)))
        return out


class Experts(MoE):
    """Chapter 14's experts, or the same by a loop of torch's products."""

    def __init__(
        self, d_model: int, d_ff: int, experts: int, k: int, operations: Operations,
        device: torch.device | str | None, dtype: torch.dtype | None,
    ) -> None:  # fmt: skip
        super().__init__(d_model, d_ff, experts, k, device=device, dtype=dtype)
        self.operations = operations

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what each token's experts make of it, (..., d_model)."""
        if self.operations.mlp == "ours":
            return super().forward(x)
        flat = x.reshape(-1, self.d_model)
        shares = F.softmax(F.linear(flat, self.router), -1, dtype=torch.float32)
        weights, chosen = shares.topk(self.k)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        out = torch.zeros_like(flat)
        for e in range(self.experts):
            token, slot = (chosen == e).nonzero(as_tuple=True)
            gate, up = F.linear(flat[token], self.gate_up[e]).chunk(2, -1)
            y = F.linear(F.silu(gate) * up, self.down[e])
            out = out.index_add(0, token, y * weights[token, slot, None])
        return out.view(x.shape)


class TransformerLayer(nn.Module):
    """Attention and a gated MLP, each behind a norm and around a residual.

        y = x + attention(norm(x)),    out = y + mlp(norm(y))

    Args:
        d_model: numbers of a token.
        heads: of the queries; d_model / heads numbers each.
        d_ff: numbers of the hidden layer, of each expert if there are any.
        kv_heads: of keys and values; heads when absent.
        experts: a mixture of so many in the MLP's place.
        experts_per_token: how many of them a token takes.
        base: of the rotary embedding.
        max_len: positions are below it.
        eps: of the norms.
        operations: which are ours; for the device the fastest, when absent.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        ValueError: sizes that do not fit.

    Source: Touvron and others, LLaMA (2023), section 2.2; Shazeer, GLU Variants (2020).
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_ff: int,
        *,
        kv_heads: int | None = None,
        experts: int | None = None,
        experts_per_token: int = 2,
        base: float = 10_000.0,
        max_len: int = 8192,
        eps: float = 1e-5,
        operations: Operations | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        place = device or torch.get_default_device()
        ops = operations or Operations.for_device(place)
        made = ops, device, dtype
        self.norm_attention = Norm(d_model, eps, *made)
        self.attention = Attention(
            d_model, heads, kv_heads or heads, base, max_len, *made
        )
        self.norm_mlp = Norm(d_model, eps, *made)
        self.mlp: nn.Module = (
            GatedMLP(d_model, d_ff, *made)
            if experts is None
            else Experts(d_model, d_ff, experts, experts_per_token, *made)
        )

    def forward(
        self,
        x: torch.Tensor,
        positions: torch.Tensor | None = None,
        cache: KVCache | None = None,
        layer: int = 0,
    ) -> torch.Tensor:
        """Transform a sequence.

        Args:
            x: (batch, length, d_model).
            positions: int32 (batch, length); 0, 1, 2, … when absent.
            cache: what came before, to which these tokens' keys are added.
            layer: which of the cache's layers this is.

        Returns:
            x's shape.
        """
        if positions is None:
            positions = count_positions(x)
        y = self.attention(self.norm_attention(x), x, positions, cache, layer)
        return y + self.mlp(self.norm_mlp(y))


def count_positions(x: torch.Tensor) -> torch.Tensor:
    """Return 0, 1, 2, … for each sequence of x: int32 (batch, length)."""
    batch, length = x.shape[:2]
    steps = torch.arange(length, dtype=torch.int32, device=x.device)
    return steps.expand(batch, length).contiguous()
