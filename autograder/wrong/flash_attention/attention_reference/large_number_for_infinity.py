# expect: gets the mean of all values
def attention_reference(q: Tensor, k: Tensor, v: Tensor, seen: Tensor):
    """Attend with all scores in memory; seen[i, j]: i sees key j."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~seen, -1e9)
    weights = torch.softmax(scores, dim=-1)
    return weights @ v
