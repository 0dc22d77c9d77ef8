# expect: Hidden scores are 0
def attention_reference(q: Tensor, k: Tensor, v: Tensor, seen: Tensor):
    """Attend with all scores in memory; seen[i, j]: i sees key j."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = scores * seen
    weights = torch.softmax(scores, dim=-1)
    weights = torch.where(seen.any(dim=-1, keepdim=True), weights, 0.0)
    return weights @ v
