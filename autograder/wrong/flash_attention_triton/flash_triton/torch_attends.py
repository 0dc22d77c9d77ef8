# expect: no Triton kernel made them
def flash_triton(q, k, v):
    """Attend with a matrix of n * n numbers."""
    s = q.float() @ k.float().transpose(-1, -2) * q.shape[-1] ** -0.5
    return (torch.softmax(s, -1) @ v.float()).to(q.dtype)
