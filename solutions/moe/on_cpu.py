"""What ``route.cu`` and ``permute.cu`` do, in torch's operations: for the CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def routed(
    logits: torch.Tensor, k: int, of_chosen: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose and weigh, as ``routing.routed``."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    # topk leaves open which of equal logits comes first; a stable sort does not.
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    first = ordered[:, :k]
    weights = first.softmax(-1) if of_chosen else ordered.softmax(-1)[:, :k]
    return weights.contiguous(), order[:, :k].to(torch.int32)


def routed_backward(
    logits: torch.Tensor,
    weights: torch.Tensor,
    chosen: torch.Tensor,
    slopes: torch.Tensor,
    of_chosen: bool,
) -> torch.Tensor:
    """Return the logits' gradient, as ``routing.routed_backward``."""
    dot = (weights * slopes).sum(-1, keepdim=True)
    if of_chosen:
        base = torch.zeros_like(logits, dtype=weights.dtype)
    else:
        base = -logits.to(weights.dtype).softmax(-1) * dot
    found = base.scatter(1, chosen.long(), weights * (slopes - dot))
    return found.to(logits.dtype)


def placed(
    chosen: torch.Tensor, experts: int, round: int, capacity: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sort pairs by expert, as ``permutation.placed``."""
    flat = chosen.flatten().long()
    valid = (flat >= 0) & (flat < experts)
    key = torch.where(valid, flat, experts)
    counts = torch.bincount(key, minlength=experts + 1)
    kept = counts[:experts].clamp(max=capacity)
    whole = (kept + round - 1) // round * round
    begins = whole.cumsum(0) - whole
    order = key.argsort(stable=True)
    # How many of the same expert come before.
    rank = torch.empty_like(flat)
    firsts = counts.cumsum(0) - counts
    rank[order] = torch.arange(flat.numel(), device=flat.device) - firsts[key[order]]
    inside = valid & (rank < capacity)
    rows = torch.where(inside, F.pad(begins, (0, 1))[key] + rank, -1)
    found = rows.view(chosen.shape), begins, begins + kept
    return tuple(one.to(torch.int32) for one in found)  # type: ignore[return-value]


def sent(
    x: torch.Tensor,
    rows: torch.Tensor,
    weights: torch.Tensor | None,
    begins: torch.Tensor | None,
    ends: torch.Tensor | None,
    round: int,
    height: int,
    *,
    whole: bool,
) -> torch.Tensor:
    """Copy each token's numbers to its rows, as ``permutation.sent``."""
    out = x.new_zeros(height, x.shape[1])
    token, slot = (rows >= 0).nonzero(as_tuple=True)
    numbers = x[token]
    if weights is not None:
        numbers = (numbers * weights[token, slot, None]).to(x.dtype)
    out[rows[token, slot].long()] = numbers
    return out


def gathered(
    y: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor | None
) -> torch.Tensor:
    """Sum each token's rows, as ``permutation.gathered``."""
    wide = torch.promote_types(y.dtype, torch.float32)
    out = y.new_zeros(rows.shape[0], y.shape[1], dtype=wide)
    for j in range(rows.shape[1]):
        token = (rows[:, j] >= 0).nonzero().squeeze(1)
        numbers = y[rows[token, j].long()].to(wide)
        if weights is not None:
            numbers *= weights[token, j, None]
        out[token] += numbers
    return out.to(y.dtype)


def weighed(grad: torch.Tensor, y: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Multiply gradients by rows, as ``permutation.weighed``."""
    wide = torch.promote_types(y.dtype, torch.float32)
    out = grad.new_zeros(rows.shape, dtype=wide)
    for j in range(rows.shape[1]):
        token = (rows[:, j] >= 0).nonzero().squeeze(1)
        numbers = y[rows[token, j].long()].to(wide)
        out[token, j] = (grad[token].to(wide) * numbers).sum(-1)
    return out


def swiglu(both: torch.Tensor) -> torch.Tensor:
    """Return silu of the first half of columns, times the second."""
    wide = torch.promote_types(both.dtype, torch.float32)
    gate, up = both.to(wide).chunk(2, dim=1)
    return (F.silu(gate) * up).to(both.dtype)


def swiglu_backward(
    both: torch.Tensor,
    slopes: torch.Tensor,
    rows: torch.Tensor,
    weights: torch.Tensor,
    begins: torch.Tensor,
    ends: torch.Tensor,
    round: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Go back through weights and swiglu, as ``permutation.swiglu_backward``."""
    wide = weights.dtype
    gate, up = both.to(wide).chunk(2, dim=1)
    slope, part = slopes.to(wide), gate.sigmoid()
    hidden = gate * part * up
    inside = rows >= 0
    weight = weights.new_zeros(both.shape[0], 1)
    weight[rows[inside].long(), 0] = weights[inside]
    of_weights = torch.zeros_like(weights)
    of_weights[inside] = (hidden * slope).sum(-1)[rows[inside].long()]
    of_gate = weight * slope * up * part * (1 + gate * (1 - part))
    of_both = torch.cat((of_gate, weight * slope * gate * part), dim=1)
    return of_both.to(both.dtype), (weight * hidden).to(both.dtype), of_weights
