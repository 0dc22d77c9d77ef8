# expect: The mask is upside down
def attention_reference(q: Tensor, k: Tensor, v: Tensor, seen: Tensor):
    """Attend with all scores in memory; seen[i, j]: i sees key j."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(seen, -math.inf)
    weights = torch.softmax(scores, dim=-1)
    weights = weights.nan_to_num(0.0)
    return weights @ v
