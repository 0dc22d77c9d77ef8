"""The keys and values of all tokens so far, so that none is computed twice."""

from __future__ import annotations

import torch


class KVCache:
    """Keys and values of each layer, in memory that is there from the beginning.

    Args:
        layers: of the model.
        batch: sequences.
        kv_heads: of the keys.
        max_len: tokens that a sequence may have.
        head_dim: of a head.
        device: where it lies.
        dtype: of its numbers.

    Attributes:
        keys: (layers, batch, kv_heads, max_len, head_dim).
        values: likewise.
        length: tokens that are in it, of every sequence.
        lengths: the same on the device, int32 (batch,), which a CUDA graph reads.

    Cost: 2 layers kv_heads head_dim itemsize bytes a token.
    """

    def __init__(
        self, layers: int, batch: int, kv_heads: int, max_len: int, head_dim: int,
        device: torch.device | str, dtype: torch.dtype,
    ) -> None:  # fmt: skip
        shape = (2, layers, batch, kv_heads, max_len, head_dim)
        self.keys, self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.length, self.max_len = 0, max_len
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=device)

    def positions(self, new: int) -> torch.Tensor:
        """Return the positions of tokens that come next: int32 (batch, new)."""
        if self.length + new > self.max_len:
            raise ValueError(
                f"the cache has room for {self.max_len} tokens, and {self.length} are "
                f"in it; {new} more do not fit: make it with a greater max_len."
            )
        steps = torch.arange(new, dtype=torch.int32, device=self.lengths.device)
        return self.lengths[:, None] + steps

    def advance(self, new: int) -> None:
        """Count new tokens; with a negative number the last ones are forgotten."""
        self.length += new
        self.lengths += new
