"""Two faults of a cache that training never meets: there every text starts at 0.

New tokens were turned as if they were the first ones, and the mask had its corner where
queries and keys begin, not where they end.
"""

from __future__ import annotations

import torch


# [exercise:misplaced_token]
def turn(x, first):
    """Turn the heads of x, (new, heads, size), from position first on."""
    new, _, size = x.shape
    place = first + torch.arange(new, dtype=x.dtype, device=x.device)
    pair = torch.arange(0, size, 2, dtype=x.dtype, device=x.device)
    angle = place[:, None, None] * 10_000.0 ** (-pair / size)
    cosine, sine = angle.cos(), angle.sin()
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)


def attend_cached(joined, keys, values, start):
    """Attend from new tokens, the first of which is at position start.

    joined is (new, 3, heads, size): q, k and v of each token. The caches,
    (max_len, heads, size), are filled up to start, and written.
    """
    new, _, _, size = joined.shape
    end = start + new
    # [hole]
    # [broken]
    # q, k = turn(joined[:, 0], 0), turn(joined[:, 1], 0)
    # keys[start:end], values[start:end] = k, joined[:, 2]
    # scores = torch.einsum("ihd,jhd->hij", q, keys[:end]) / size**0.5
    # seen = torch.ones_like(scores[0], dtype=torch.bool).tril()
    # [/broken]
    q, k = turn(joined[:, 0], start), turn(joined[:, 1], start)
    keys[start:end], values[start:end] = k, joined[:, 2]
    scores = torch.einsum("ihd,jhd->hij", q, keys[:end]) / size**0.5
    seen = torch.ones_like(scores[0], dtype=torch.bool).tril(start)
    # [/hole]
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    out = torch.einsum("hij,jhd->ihd", weights, values[:end])
    return out, keys, values


# [/exercise]
