# expect: that factor belongs to exp2
@triton.jit
def walk(
    q,
    k_ptr,
    v_ptr,
    most,
    total,
    acc,
    rows,
    start,
    stop,
    n,
    scale,
    D: tl.constexpr,
    COLS: tl.constexpr,
    EDGE: tl.constexpr,
):
    """Absorb keys start to stop; EDGE: not every query sees them all."""
    c, d = tl.arange(0, COLS), tl.arange(0, D)
    for first in tl.range(start, stop, COLS):
        cols = first + c
        at = cols[:, None] * D + d[None, :]
        if EDGE:
            k = tl.load(k_ptr + at, mask=cols[:, None] < n, other=0.0)
            v = tl.load(v_ptr + at, mask=cols[:, None] < n, other=0.0)
        else:
            k = tl.load(k_ptr + at)
            v = tl.load(v_ptr + at)
        s = tl.dot(q, tl.trans(k)) * scale
        if EDGE:
            s = tl.where(cols[None, :] <= rows[:, None], s, float("-inf"))
        new = tl.maximum(most, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        shrink = tl.exp(most - new)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        most = new
    return most, total, acc


@triton.jit
def fast_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    n,
    scale,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Own ROWS queries: whole tiles first, then those at the diagonal."""
    d = tl.arange(0, D)
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest first
    head = tl.program_id(1).to(tl.int64) * n * D
    rows = block * ROWS + tl.arange(0, ROWS)
    at = head + rows[:, None] * D + d[None, :]
    q = tl.load(q_ptr + at, mask=rows[:, None] < n, other=0.0)
    most = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D], tl.float32)
    whole = block * ROWS // COLS * COLS
    stop = tl.minimum(n, (block + 1) * ROWS)
    k_head, v_head = k_ptr + head, v_ptr + head
    most, total, acc = walk(
        q, k_head, v_head, most, total, acc, rows, 0, whole, n, scale, D, COLS, False
    )
    most, total, acc = walk(
        q, k_head, v_head, most, total, acc, rows, whole, stop, n, scale, D, COLS, True
    )
    out = acc / total[:, None]
    tl.store(out_ptr + at, out.to(q.dtype), mask=rows[:, None] < n)


def flash_fast(q, k, v):
    """Attend causally; contiguous (batch, heads, n, head_dim), 16 bits."""
    batch, heads, n, d = q.shape
    out = torch.empty_like(q)
    rows, cols, stages = 128, 128 if d > 64 else 64, 3
    grid = (triton.cdiv(n, rows), batch * heads)
    fast_kernel[grid](
        q,
        k,
        v,
        out,
        n,
        d**-0.5 * 1.4426950408889634,
        D=d,
        ROWS=rows,
        COLS=cols,
        num_warps=8,
        num_stages=stages,
    )
    return out
