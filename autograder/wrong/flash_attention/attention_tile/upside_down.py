# expect: Every number is NaN
def attention_tile(q: Tensor, k: Tensor, v: Tensor, tile: int) -> Tensor:
    """Attend without the matrix of scores: `tile` keys at a time."""
    # Of each query: the maximum, the sum of the weights, and of the
    # weighted values.
    top = torch.full_like(q[..., :1], -math.inf)
    weight, total = torch.zeros_like(top), torch.zeros_like(q)
    for start in range(0, k.shape[-2], tile):
        keys = k[..., start : start + tile, :]
        values = v[..., start : start + tile, :]
        scores = q @ keys.mT / math.sqrt(q.shape[-1])
        higher = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
        mend = torch.exp(higher - top)
        weights = torch.exp(scores - higher)
        weight = weight * mend + weights.sum(dim=-1, keepdim=True)
        total = total * mend + weights @ values
        top = higher
    return total / weight
