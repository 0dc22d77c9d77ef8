# expect: those past the end too
@triton.jit
def causal_kernel(
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
    """Own ROWS queries of one head; query i sees the keys j <= i."""
    head = tl.program_id(1) * n
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    q = load_rows(q_ptr, head, rows, n, D)
    most, total, acc = nothing(ROWS, D)
    stop = tl.minimum(n, (tl.program_id(0) + 1) * ROWS)
    for first in tl.range(0, stop, COLS):
        cols = first + tl.arange(0, COLS)
        k = load_rows(k_ptr, head, cols, n, D)
        v = load_rows(v_ptr, head, cols, n, D)
        seen = cols <= rows
        most, total, acc = absorb(q, k, v, seen, scale, most, total, acc)
    store_rows(out_ptr, head, rows, n, acc / total[:, None], D)


def flash_triton_causal(q, k, v):
    """Attend causally; contiguous (batch, heads, n, head_dim), 16 bits."""
    batch, heads, n, d = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(n, 64), batch * heads)
    causal_kernel[grid](q, k, v, out, n, d**-0.5, D=d, ROWS=64, COLS=64)
    return out
