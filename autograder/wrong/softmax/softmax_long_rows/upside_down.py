# expect: The factor is upside down
@triton.jit
def piece_kernel(x_ptr, maximum_ptr, total_ptr, columns, BLOCK: tl.constexpr):
    """Own one piece of BLOCK numbers; leave its maximum and total."""
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    c = piece * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + c, mask=c < columns, other=float("-inf")).to(
        tl.float32
    )
    maximum = tl.max(x, 0)
    # A piece may be all -inf, and -inf - -inf is NaN.
    base = tl.where(maximum == float("-inf"), 0.0, maximum)
    total = tl.sum(tl.exp(x - base), 0)
    at = row * tl.num_programs(1) + piece
    tl.store(maximum_ptr + at, maximum)
    tl.store(total_ptr + at, total)


@triton.jit
def combine_kernel(
    x_ptr,
    maximum_ptr,
    total_ptr,
    out_ptr,
    columns,
    BLOCK: tl.constexpr,
    ROOM: tl.constexpr,
):
    """Own one piece again; ROOM is a power of two >= the pieces."""
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    pieces = tl.num_programs(1)
    p = tl.arange(0, ROOM)
    at = row * pieces + p
    maxima = tl.load(maximum_ptr + at, mask=p < pieces, other=float("-inf"))
    totals = tl.load(total_ptr + at, mask=p < pieces, other=0.0)
    c = piece * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + c, mask=c < columns, other=float("-inf")).to(
        tl.float32
    )
    maximum = tl.max(maxima, 0)
    total = tl.sum(totals * tl.exp(maximum - maxima), 0)
    out = tl.exp(x - maximum) / total
    tl.store(
        out_ptr + row * columns + c, out.to(out_ptr.dtype.element_ty), mask=c < columns
    )


def softmax_long_rows(x):
    """Return the softmax of each row of x (rows, columns), contiguous."""
    out = torch.empty_like(x)
    rows, columns = x.shape
    pieces = triton.cdiv(columns, 4096)
    maxima = torch.empty(rows, pieces, device=x.device)
    totals = torch.empty_like(maxima)
    if x.numel() > 0:
        grid = (rows, pieces)
        piece_kernel[grid](x, maxima, totals, columns, BLOCK=4096)
        combine_kernel[grid](
            x,
            maxima,
            totals,
            out,
            columns,
            BLOCK=4096,
            ROOM=triton.next_power_of_2(pieces),
        )
    return out
