# expect: dv: only what the last tile
@triton.jit
def tile_gradients(q, k, v, grad, lse, dot, seen, scale, dk, dv):
    """Add what a tile of queries gives to dk and dv; give its dq.

    q, grad (ROWS, D); k, v and fp32 dk, dv (COLS, D); lse, dot (ROWS,);
    seen (ROWS, COLS). Returns dq (ROWS, D) from these keys, dk, dv.
    """
    s = tl.where(seen, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    p = tl.exp(s - lse[:, None])
    dv = tl.dot(tl.trans(p.to(grad.dtype)), grad)
    dp = tl.dot(grad, tl.trans(v))
    ds = (p * (dp - dot[:, None]) * scale).to(q.dtype)
    dk += tl.dot(tl.trans(ds), q)
    dq = tl.dot(ds, k)
    return dq, dk, dv
