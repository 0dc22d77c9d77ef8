"""A Llama-style language model out of the course's operations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from solutions.transformer.cache import KVCache
from solutions.transformer.decoding import add_norm, fits
from solutions.transformer.layer import (
    DECODED,
    Norm,
    TransformerLayer,
    count_positions,
)
from solutions.transformer.loss import linear_cross_entropy
from solutions.transformer.operations import Operations


@dataclass(frozen=True)
class Config:
    """Sizes of a model.

    Args:
        vocabulary: tokens that there are.
        d_model: numbers of a token inside of the model.
        layers: how many.
        heads: of the queries.
        kv_heads: of keys and values, a divisor of heads.
        d_ff: numbers of the hidden layer.
        experts: of a mixture in each MLP's place; 0 for none.
        experts_per_token: how many of them a token takes.
        max_len: the longest sequence.
        base: of the rotary embedding.
        eps: of the norms.
    """

    vocabulary: int
    d_model: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    d_ff: int = 704
    experts: int = 0
    experts_per_token: int = 2
    max_len: int = 8192
    base: float = 10_000.0
    eps: float = 1e-5


class Model(nn.Module):
    """Predict the next token of a text, at each of its places.

    Args:
        config: sizes.
        operations: which are ours; on a GPU all, elsewhere none, when absent.
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(
        self,
        config: Config,
        operations: Operations | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        place = device or torch.get_default_device()
        self.config = config
        self.operations = operations or Operations.for_device(place)
        shape = config.vocabulary, config.d_model
        self.embedding = nn.Embedding(*shape, device=device, dtype=dtype)
        self.layers = nn.ModuleList(
            TransformerLayer(
                config.d_model, config.heads, config.d_ff, kv_heads=config.kv_heads,
                experts=config.experts or None,
                experts_per_token=config.experts_per_token, base=config.base,
                max_len=config.max_len, eps=config.eps, operations=self.operations,
                device=device, dtype=dtype,
            )
            for _ in range(config.layers)
        )  # fmt: skip
        self.norm = Norm(config.d_model, config.eps, self.operations, device, dtype)
        self.head = nn.Linear(
            config.d_model, config.vocabulary, bias=False, device=device, dtype=dtype
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw matrices from a normal distribution of 0.02, what is added narrower.

        Source: Radford and others, GPT-2 (2019), section 2.3.
        """
        narrow = 0.02 / (2 * self.config.layers) ** 0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                added = name.endswith(("out.weight", "down.weight", "mlp.down"))
                nn.init.normal_(parameter, std=narrow if added else 0.02)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.norm.weight.device

    def use(self, operations: Operations) -> Model:
        """Exchange operations; the parameters stay what they are."""
        for module in self.modules():
            if hasattr(module, "operations"):
                module.operations = operations
        return self

    def new_cache(self, batch: int, max_len: int) -> KVCache:
        """Make an empty cache for so many sequences and tokens."""
        config = self.config
        if max_len > config.max_len:
            raise ValueError(
                f"a cache of {max_len} tokens was asked for, and the model's longest "
                f"sequence is {config.max_len}: Config(max_len={max_len})."
            )
        return KVCache(
            config.layers, batch, config.kv_heads, max_len,
            config.d_model // config.heads, self.device, self.norm.weight.dtype,
        )  # fmt: skip

    def hidden(
        self, tokens: torch.Tensor, cache: KVCache | None = None
    ) -> torch.Tensor:
        """Return the last layer's result, normalised: (batch, length, d_model)."""
        length = tokens.shape[1]
        if length > self.config.max_len:
            raise ValueError(
                f"{length} tokens; the model's longest sequence is "
                f"{self.config.max_len}: Config(max_len={length})."
            )
        positions = (
            count_positions(tokens) if cache is None else cache.positions(length)
        )
        x = self.embedding(tokens)
        if cache is not None and length <= DECODED and fits(self, x):
            return self._few(x, positions, cache)
        for index, layer in enumerate(self.layers):
            x = layer(x, positions, cache, index)
        if cache is not None:
            cache.advance(length)
        out: torch.Tensor = self.norm(x)
        return out

    def _few(
        self, x: torch.Tensor, positions: torch.Tensor, cache: KVCache
    ) -> torch.Tensor:
        """Go through all layers with each addition inside of the norm behind it."""
        norms = [layer.norm_attention for layer in self.layers] + [self.norm]
        y = norms[0](x)
        for index, layer in enumerate(self.layers):
            attention = layer.attention
            seen = attention.attend(attention.joined(y), positions, cache, index)
            after = layer.norm_mlp
            y = add_norm(x, attention.out(seen), after.weight, after.eps)
            after = norms[index + 1]
            y = add_norm(x, layer.mlp(y), after.weight, after.eps)
        cache.advance(x.shape[1])
        return y

    def forward(
        self, tokens: torch.Tensor, cache: KVCache | None = None
    ) -> torch.Tensor:
        """Return a logit for each token of the vocabulary, at each place.

        Args:
            tokens: int64 (batch, length).
            cache: what came before; these tokens are added to it.

        Returns:
            (batch, length, vocabulary).
        """
        out: torch.Tensor = self.head(self.hidden(tokens, cache))
        return out

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean cross entropy of what comes next.

        Args:
            tokens: int64 (batch, length).
            targets: likewise, each the token that follows; -100 counts for nothing.
        """
        x = self.hidden(tokens).flatten(0, 1)
        if self.operations.loss == "ours" and isinstance(self.head, nn.Linear):
            return linear_cross_entropy(x, self.head.weight, targets.flatten())
        logits = self.head(x)
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return F.cross_entropy(wide, targets.flatten())
