"""Self-attention as a module: ``nn.MultiheadAttention`` with flash attention inside."""

from __future__ import annotations

import torch
from torch import nn

from solutions.flash_attention.attention import KernelName, flash_attention


class FlashAttention(nn.Module):
    """Attend from a sequence to itself: a drop-in for ``nn.MultiheadAttention``.

    Takes its arguments, keeps its parameters under the same names (a state_dict of
    either loads into the other), and returns what it returns with
    ``need_weights=False``: the weights are never all in memory, so they cannot be
    returned.

    Args:
        embed_dim: of the model; a multiple of num_heads.
        num_heads: heads, of embed_dim / num_heads elements each, 256 at most.
        dropout: share of the weights that is dropped in training.
        bias: whether the projections have one.
        batch_first: (batch, length, embed_dim) instead of (length, batch, embed_dim).
        device: of the parameters.
        dtype: of the parameters.
        kernel: as ``flash_attention`` has it.

    Raises:
        ValueError: sizes that do not fit.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        kernel: KernelName | None = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(
                f"FlashAttention: embed_dim is {embed_dim} and num_heads {num_heads}; "
                "wanted embed_dim to be a multiple of num_heads."
            )
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.dropout, self.batch_first, self.kernel = dropout, batch_first, kernel
        self.in_proj_weight = nn.Parameter(
            torch.empty(3 * embed_dim, embed_dim, device=device, dtype=dtype)
        )
        self.out_proj = nn.Linear(
            embed_dim, embed_dim, bias=bias, device=device, dtype=dtype
        )
        if bias:
            self.in_proj_bias = nn.Parameter(
                torch.empty(3 * embed_dim, device=device, dtype=dtype)
            )
        else:
            self.register_parameter("in_proj_bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters as ``nn.MultiheadAttention`` does."""
        nn.init.xavier_uniform_(self.in_proj_weight)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor | None = None,
        value: torch.Tensor | None = None,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = False,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, None]:
        """Attend.

        Args:
            query: (length, batch, embed_dim), or with the batch first; or without one.
            key: query itself, or left away.
            value: likewise.
            key_padding_mask: bool (batch, length), true is padding; or floating, added.
            need_weights: must be false.
            attn_mask: (length, length) or (batch * num_heads, length, length); bool
                (**true is hidden**, as in ``nn.MultiheadAttention``) or floating.
            average_attn_weights: without meaning here.
            is_causal: hide what comes later. No mask is needed for that; where one is
                given it is used, and this is a hint, as in torch.

        Returns:
            The attended sequence, query's shape; and None.

        Raises:
            ValueError: weights were asked for, or another sequence to attend to.
        """
        del average_attn_weights
        if need_weights:
            raise ValueError(
                "FlashAttention never has all weights in memory: call it with "
                "need_weights=False, or use nn.MultiheadAttention to look at them."
            )
        if not (key is None or key is query) or not (value is None or value is key):
            raise ValueError(
                "FlashAttention is self-attention: key and value are the query itself, "
                "or left away. For others, project and call flash_attention."
            )
        if query.dim() not in (2, 3) or query.shape[-1] != self.embed_dim:
            raise ValueError(
                f"query has shape {tuple(query.shape)}; wanted (length, batch, "
                f"{self.embed_dim}), or (batch, length, …) with batch_first=True."
            )
        alone = query.dim() == 2
        x = query[None] if alone else query
        if not alone and not self.batch_first:
            x = x.transpose(0, 1)
        batch, length, _ = x.shape
        packed = nn.functional.linear(x, self.in_proj_weight, self.in_proj_bias)
        # (batch, length, 3 * embed_dim) -> three of (batch, heads, length, head_dim)
        q, k, v = packed.view(batch, length, 3, self.num_heads, -1).permute(
            2, 0, 3, 1, 4
        )
        padding, mask = self._masks(key_padding_mask, attn_mask, alone, batch)
        attended = flash_attention(
            q,
            k,
            v,
            mask=None if mask is None else mask.to(_mask_dtype(mask, q)),
            key_padding_mask=padding,
            causal=is_causal and attn_mask is None,
            dropout_p=self.dropout if self.training else 0.0,
            kernel=self.kernel,
        )
        out = self.out_proj(attended.transpose(1, 2).reshape(batch, length, -1))
        if alone:
            return out[0], None
        return (out if self.batch_first else out.transpose(0, 1)), None

    def _masks(
        self,
        padding: torch.Tensor | None,
        mask: torch.Tensor | None,
        alone: bool,
        batch: int,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Turn torch's two masks into flash_attention's."""
        if mask is not None:
            # Here true takes part; in nn.MultiheadAttention true is hidden.
            mask = ~mask if mask.dtype == torch.bool else mask
            if mask.dim() == 3:
                mask = mask.view(batch, self.num_heads, *mask.shape[1:])
        if padding is None:
            return None, mask
        padding = padding[None] if alone else padding
        if padding.dtype == torch.bool:
            return padding, mask
        added = padding[:, None, None, :]
        if mask is None:
            return None, added
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=added.dtype).masked_fill(
                ~mask, -torch.inf
            )
        return None, mask + added


def _mask_dtype(mask: torch.Tensor, q: torch.Tensor) -> torch.dtype:
    return mask.dtype if mask.dtype == torch.bool else q.dtype
