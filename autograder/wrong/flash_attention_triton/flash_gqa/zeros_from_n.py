# expect: loaded as zeros
@triton.jit
def grouped_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    heads,
    kv_heads,
    n,
    keys,
    scale,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Own ROWS queries of a query head; the last one sees the last key."""
    b, h = tl.program_id(1) // heads, tl.program_id(1) % heads
    queries = (b * heads + h) * n
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    q = load_rows(q_ptr, queries, rows, n, D)
    most, total, acc = nothing(ROWS, D)
    head = (b * kv_heads + h // (heads // kv_heads)) * keys
    ahead = keys - n
    stop = tl.minimum(keys, (tl.program_id(0) + 1) * ROWS + ahead)
    for first in tl.range(0, stop, COLS):
        cols = first + tl.arange(0, COLS)
        k = load_rows(k_ptr, head, cols, n, D)
        v = load_rows(v_ptr, head, cols, n, D)
        seen = cols[None, :] <= rows[:, None] + ahead
        seen = seen & (cols[None, :] < keys)
        most, total, acc = absorb(q, k, v, seen, scale, most, total, acc)
    store_rows(out_ptr, queries, rows, n, acc / total[:, None], D)


def flash_gqa(q, k, v):
    """Attend; q (batch, heads, n, d); k, v (batch, kv_heads, keys, d)."""
    batch, heads, n, d = q.shape
    kv_heads, keys = k.shape[1:3]
    out = torch.empty_like(q)
    grid = (triton.cdiv(n, 64), batch * heads)
    grouped_kernel[grid](
        q, k, v, out, heads, kv_heads, n, keys, d**-0.5, D=d, ROWS=64, COLS=64
    )
    return out
