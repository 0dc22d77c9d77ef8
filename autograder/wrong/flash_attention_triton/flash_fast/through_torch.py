# expect: no Triton kernel made them
def flash_fast(q, k, v):
    """Attend with a matrix of n * n numbers."""
    n = q.shape[2]
    s = q.float() @ k.float().transpose(-1, -2) * q.shape[-1] ** -0.5
    ahead = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    s = s.masked_fill(ahead, float("-inf"))
    return (torch.softmax(s, -1) @ v.float()).to(q.dtype)
