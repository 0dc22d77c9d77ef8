# expect: behind a piece's end take part
@triton.jit
def split_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    lengths_ptr,
    part_ptr,
    lse_ptr,
    kv_heads,
    group,
    capacity,
    scale,
    SPLITS: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Own one piece of a KV head's cache, for all heads that share it."""
    piece, plane = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths_ptr + plane // kv_heads)
    r = tl.arange(0, ROWS)
    q = load_rows(q_ptr, plane * group, r, group, D)
    most, total, acc = nothing(ROWS, D)
    size = tl.cdiv(length, SPLITS)
    start = piece * size
    stop = tl.minimum(start + size, length)
    for first in tl.range(start, stop, COLS):
        cols = first + tl.arange(0, COLS)
        k = load_rows(k_ptr, plane * capacity, cols, stop, D)
        v = load_rows(v_ptr, plane * capacity, cols, stop, D)
        seen = (r[:, None] >= 0) & (cols[None, :] < length)
        most, total, acc = absorb(q, k, v, seen, scale, most, total, acc)
    some = total > 0  # a piece past the end has seen nothing
    share = tl.where(some, total, 1.0)
    lse = tl.where(some, most + tl.log(share), float("-inf"))
    out = (plane * SPLITS + piece) * ROWS
    tl.store(lse_ptr + out + r, lse)
    store_rows(part_ptr, out, r, ROWS, acc / share[:, None], D)


def decode_pieces(q, k_cache, v_cache, lengths):
    """Return part (planes, 4, 16, d) and lse (planes, 4, 16) of 4 pieces."""
    batch, heads, d = q.shape
    kv_heads, capacity = k_cache.shape[1:3]
    part = torch.empty(batch * kv_heads, 4, 16, d, device=q.device)
    lse = torch.empty(batch * kv_heads, 4, 16, device=q.device)
    split_kernel[(4, batch * kv_heads)](
        q,
        k_cache,
        v_cache,
        lengths,
        part,
        lse,
        kv_heads,
        heads // kv_heads,
        capacity,
        d**-0.5,
        SPLITS=4,
        D=d,
        ROWS=16,
        COLS=64,
    )
    return part, lse
