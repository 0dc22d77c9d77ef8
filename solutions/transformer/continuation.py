"""Generation with a KV cache, around a model that is given."""

from __future__ import annotations

import torch


# [exercise:generate]
def generate(model, prompt, noise, temperature, end):
    """Continue a prompt by len(noise) tokens; return these alone, int64.

    model(tokens, positions, cache) computes tokens (n) at positions (n),
    adds their keys to the cache, and returns logits (n, vocabulary).
    """
    # [hole]
    new = len(noise)
    made = prompt.new_full((new,), end)
    cache = model.new_cache(len(prompt) + new)
    tokens, first = prompt, 0
    for index in range(new):
        positions = torch.arange(first, first + len(tokens))
        logits = model(tokens, positions, cache)[-1]
        first += len(tokens)
        if temperature > 0:
            logits = logits / temperature + noise[index]
        tokens = logits.argmax().view(1)
        made[index] = tokens[0]
        if made[index] == end:
            break
    return made
    # [/hole]


# [/exercise]
