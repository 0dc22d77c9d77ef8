# expect: This is full attention
@triton.jit
def backward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    grad_ptr,
    lse_ptr,
    dot_ptr,
    dq_ptr,
    dk_ptr,
    dv_ptr,
    n,
    scale,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Own COLS keys of one head; walk over the queries that see them."""
    head, mine = tl.program_id(1) * n, tl.program_id(0) * COLS
    cols, d = mine + tl.arange(0, COLS), tl.arange(0, D)
    k = load_rows(k_ptr, head, cols, n, D)
    v = load_rows(v_ptr, head, cols, n, D)
    dk = tl.zeros([COLS, D], tl.float32)
    dv = tl.zeros([COLS, D], tl.float32)
    for first in tl.range(0, n, ROWS):
        rows = first + tl.arange(0, ROWS)
        q = load_rows(q_ptr, head, rows, n, D)
        grad = load_rows(grad_ptr, head, rows, n, D)
        lse = tl.load(lse_ptr + head + rows, mask=rows < n, other=0.0)
        dot = tl.load(dot_ptr + head + rows, mask=rows < n, other=0.0)
        seen = (cols[None, :] < n) & (rows[:, None] < n)
        dq, dk, dv = tile_gradients(q, k, v, grad, lse, dot, seen, scale, dk, dv)
        at = (head + rows)[:, None] * D + d[None, :]
        tl.atomic_add(dq_ptr + at, dq, mask=rows[:, None] < n)
    store_rows(dk_ptr, head, cols, n, dk, D)
    store_rows(dv_ptr, head, cols, n, dv, D)


def flash_backward(grad, q, k, v, out, lse):
    """Return dq, dk, dv of causal attention; lse fp32 (batch, heads, n)."""
    batch, heads, n, d = q.shape
    dot = (grad.float() * out.float()).sum(-1)
    dq = torch.zeros_like(q, dtype=torch.float32)  # many programs add
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    grid = (triton.cdiv(n, 64), batch * heads)
    backward_kernel[grid](
        q, k, v, grad, lse, dot, dq, dk, dv, n, d**-0.5, D=d, ROWS=64, COLS=64
    )
    return dq.to(q.dtype), dk, dv
