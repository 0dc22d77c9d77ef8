"""A small model around a learner's ``generate``, which counts what it computes."""

from __future__ import annotations

from typing import Any

import torch

from autograder.worker.calls import counted_by_adapter
from autograder.worker.entry import WrongReturn

COUNT, CALLS = "positions computed", "calls of model"


class Cache:
    """Keys and values by position, and which positions are filled."""

    def __init__(self, max_len: int, like: torch.Tensor) -> None:
        self.keys = torch.zeros(max_len, like.shape[1]).to(like)
        self.values = torch.zeros_like(self.keys)
        self.filled = torch.zeros(max_len, dtype=torch.bool, device=like.device)


class CountingModel:
    """One layer of attention; positions enter by an angle of each feature pair.

    Args:
        embedding: (vocabulary, d), d even.
        joined: (3, d, d), for queries, keys and values.
        head: (vocabulary, d).
    """

    def __init__(
        self, embedding: torch.Tensor, joined: torch.Tensor, head: torch.Tensor
    ) -> None:
        self.embedding, self.joined, self.head = embedding, joined, head
        self.computed = self.calls = 0

    def new_cache(self, max_len: int) -> Cache:
        """Return an empty cache for so many tokens."""
        return Cache(max_len, self.embedding)

    def __call__(
        self, tokens: torch.Tensor, positions: torch.Tensor, cache: Cache
    ) -> torch.Tensor:
        """Return logits (n, vocabulary) of tokens (n) at positions (n).

        Raises:
            WrongReturn: tokens or positions that no model takes.
        """
        if not isinstance(tokens, torch.Tensor) or tokens.dim() != 1:
            raise WrongReturn("model was given tokens that are no tensor of (n).")
        positions = torch.as_tensor(positions).to(tokens.device)
        if positions.shape != tokens.shape or positions.is_floating_point():
            raise WrongReturn(
                f"model was given {len(tokens)} tokens and positions of shape "
                f"{tuple(positions.shape)}; wanted a whole number for each token."
            )
        room = len(cache.filled)
        if len(tokens) and not 0 <= int(positions.min()) <= int(positions.max()) < room:
            raise WrongReturn(
                f"model was given position {int(positions.max())}, and the cache has "
                f"room for {room}: positions 0 to {room - 1}."
            )
        self.computed += len(tokens)
        self.calls += 1
        x = self.embedding[tokens]
        angle = positions[:, None] / torch.arange(1, x.shape[1] // 2 + 1).to(x)
        q, k, v = (x @ weight.T for weight in self.joined)
        cache.keys[positions] = _turned(k, angle)
        # Turned too, unlike a Llama's: so a text that begins elsewhere is another one.
        cache.values[positions] = _turned(v, angle)
        cache.filled[positions] = True
        scores = _turned(q, angle) @ cache.keys.T / x.shape[1] ** 0.5
        earlier = torch.arange(room, device=x.device) <= positions[:, None]
        seen = earlier & cache.filled
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        logits: torch.Tensor = (x + weights @ cache.values) @ self.head.T
        return logits


def adapt_generate(
    answer: Any,
    embedding: torch.Tensor,
    joined: torch.Tensor,
    head: torch.Tensor,
    prompt: torch.Tensor,
    noise: torch.Tensor,
    temperature: float,
    end: int,
) -> torch.Tensor:
    """Have tokens generated, and count the positions that the model computed."""
    model = CountingModel(embedding, joined, head)
    made = answer(model, prompt, noise, temperature, end)
    counted_by_adapter[COUNT] = model.computed
    counted_by_adapter[CALLS] = model.calls
    return made  # type: ignore[no-any-return]  # what it is, the worker asks


def adapt_cached(
    answer: Any,
    joined: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    start: int,
) -> Any:
    """Call an answer with caches in which NaN lies behind the new tokens.

    Raises:
        WrongReturn: it read what lies there.
    """
    end = start + len(joined)
    kept = keys.clone(), values.clone()
    for cache in (keys, values):
        cache[end:] = torch.nan
    found = answer(joined, keys, values, start)
    if [getattr(one, "shape", 0) for one in found] != [
        joined[:, 0].shape,
        keys.shape,
        keys.shape,
    ]:
        return found  # the worker says so
    for cache, before in zip(found[1:], kept, strict=True):
        behind = cache[end:]
        behind.copy_(torch.where(behind.isnan(), before[end:], behind))
    if found[0].isnan().any() and answer(joined, *kept, start)[0].isfinite().all():
        raise WrongReturn(
            "what lies in the caches behind the new tokens was read: NaN stood there, "
            "and reached `out`, since 0 times NaN is NaN. Take keys[:end] and "
            "values[:end]."
        )
    return found


def _turned(x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    cosine, sine = angle.cos(), angle.sin()
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)
