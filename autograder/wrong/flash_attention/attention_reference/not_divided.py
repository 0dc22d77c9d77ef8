# expect: not divided by their sum
def attention_reference(q: Tensor, k: Tensor, v: Tensor, seen: Tensor):
    """Attend with all scores in memory; seen[i, j]: i sees key j."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~seen, -math.inf)
    weights = torch.exp(scores)
    weights = torch.where(seen.any(dim=-1, keepdim=True), weights, 0.0)
    return weights @ v
