# expect: one number a row
@triton.jit
def nothing(ROWS: tl.constexpr, D: tl.constexpr):
    """Return the running softmax of ROWS queries that saw no key yet."""
    most = tl.full([ROWS], float("-inf"), tl.float32)
    return most, tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, D], tl.float32)


@triton.jit
def absorb(q, k, v, seen, scale, most, total, acc):
    """Take a tile of keys into the running softmax of a tile of queries.

    q (ROWS, D); k, v (COLS, D); seen (ROWS, COLS): which key a query sees.
    most, total (ROWS,), acc (ROWS, D): fp32, so far; returned anew.
    """
    s = tl.where(seen, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    new = tl.maximum(most, tl.max(s, 1))
    p = tl.exp(s - new)
    shrink = tl.exp(most - new)
    total = total * shrink + tl.sum(p, 1)
    acc = acc * shrink[:, None] + tl.dot(p.to(v.dtype), v)
    most = new
    return most, total, acc
