# expect: it weighs 2^lse
@triton.jit
def combine_kernel(
    part_ptr,
    lse_ptr,
    out_ptr,
    group,
    SPLITS: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Own one query head; part (SPLITS, D), lse (SPLITS,): its pieces."""
    plane, r = tl.program_id(0), tl.program_id(1)
    s, d = tl.arange(0, SPLITS), tl.arange(0, D)
    at = (plane * SPLITS + s) * ROWS + r
    lse = tl.load(lse_ptr + at)
    part = tl.load(part_ptr + at[:, None] * D + d[None, :])
    weight = tl.exp2(lse - tl.max(lse, 0))
    out = tl.sum(part * weight[:, None], 0) / tl.sum(weight, 0)
    out_at = out_ptr + (plane * group + r) * D + d
    tl.store(out_at, out.to(out_ptr.dtype.element_ty))


def decode_split_kv(q, k_cache, v_cache, lengths):
    """Attend from q (batch, heads, d) over lengths[b] cached keys."""
    part, lse = decode_pieces(q, k_cache, v_cache, lengths)
    out = torch.empty_like(q)
    planes, d = part.shape[0], q.shape[2]
    group = q.shape[0] * q.shape[1] // planes
    combine_kernel[(planes, group)](part, lse, out, group, SPLITS=4, D=d, ROWS=16)
    return out
