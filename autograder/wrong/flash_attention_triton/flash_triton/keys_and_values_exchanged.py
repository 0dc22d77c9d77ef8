# expect: have changed places
@triton.jit
def flash_kernel(
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
    """Own ROWS queries of one head; walk over its keys, COLS at a time."""
    head = tl.program_id(1) * n
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    q = load_rows(q_ptr, head, rows, n, D)
    most, total, acc = nothing(ROWS, D)
    for first in tl.range(0, n, COLS):
        cols = first + tl.arange(0, COLS)
        k = load_rows(k_ptr, head, cols, n, D)
        v = load_rows(v_ptr, head, cols, n, D)
        seen = (rows[:, None] >= 0) & (cols[None, :] < n)
        most, total, acc = absorb(q, v, k, seen, scale, most, total, acc)
    store_rows(out_ptr, head, rows, n, acc / total[:, None], D)


def flash_triton(q, k, v):
    """Attend; all contiguous (batch, heads, n, head_dim), 16 bits."""
    batch, heads, n, d = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(n, 64), batch * heads)
    flash_kernel[grid](q, k, v, out, n, d**-0.5, D=d, ROWS=64, COLS=64)
    return out
