"""A transformer's layer by lines of PyTorch, nothing left to a library's module."""

from __future__ import annotations

import torch
import torch.nn.functional as F


# [exercise:transformer_block]
def transformer_block(x, norms, joined, out, gate, up, down, heads, kv_heads):
    """Return y + mlp(norm(y)), where y = x + attention(norm(x)): (length, d).

    joined is ((heads + 2 kv_heads) d / heads, d): queries' heads come
    first, then keys', then values'. norms[0] weighs the first norm.
    """
    # [hole]
    length, d = x.shape
    size = d // heads
    h = F.rms_norm(x, (d,), norms[0], 1e-5)
    split = (h @ joined.T).view(length, heads + 2 * kv_heads, size)
    q, k, v = split.split((heads, kv_heads, kv_heads), 1)
    place = torch.arange(length).to(x)
    pair = torch.arange(0, size, 2).to(x)
    angle = place[:, None, None] * 10_000.0 ** (-pair / size)
    cosine, sine = angle.cos(), angle.sin()

    def turned(t):
        a, b = t.chunk(2, -1)
        return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)

    group = heads // kv_heads
    k = turned(k).repeat_interleave(group, 1)
    v = v.repeat_interleave(group, 1)
    scores = torch.einsum("ihd,jhd->hij", turned(q), k) / size**0.5
    later = torch.ones_like(scores[0], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(later, -torch.inf).softmax(-1)
    seen = torch.einsum("hij,jhd->ihd", weights, v)
    y = x + seen.reshape(length, d) @ out.T
    h = F.rms_norm(y, (d,), norms[1], 1e-5)
    return y + (F.silu(h @ gate.T) * (h @ up.T)) @ down.T
    # [/hole]


# [/exercise]
