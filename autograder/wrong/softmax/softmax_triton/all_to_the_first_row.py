# expect: Every program writes to the first row
@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """Own one row of `columns` <= BLOCK numbers."""
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < columns
    x = tl.load(x_ptr + row * columns + c, mask=inside, other=float("-inf")).to(
        tl.float32
    )
    weight = tl.exp(x - tl.max(x, 0))
    out = weight / tl.sum(weight, 0)
    tl.store(out_ptr + c, out.to(out_ptr.dtype.element_ty), mask=inside)


def softmax_triton(x):
    """Return the softmax of each row of x (rows, columns), contiguous."""
    out = torch.empty_like(x)
    rows, columns = x.shape
    if x.numel() > 0:
        block = triton.next_power_of_2(columns)
        warps = min(16, max(1, block // 512))
        softmax_kernel[(rows,)](x, out, columns, BLOCK=block, num_warps=warps)
    return out
