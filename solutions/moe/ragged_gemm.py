"""The ladder: a product of ragged experts in Triton, a program for each tile."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


# fmt: off
# [exercise:grouped_gemm]
@triton.jit
def grouped_kernel(x_ptr, w_ptr, offsets_ptr, out_ptr,
                   height, inner, columns, experts,
                   M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Own M x N of out: rows of one expert, or rows of none."""
    # [hole]
    across = tl.cdiv(columns, N)
    tile = tl.program_id(0) // across
    expert, begin, end = 0, 0, tl.load(offsets_ptr)
    # Behind the last expert's rows: as if of one more, with no matrix.
    while (expert < experts) & (tile >= tl.cdiv(end - begin, M)):
        tile -= tl.cdiv(end - begin, M)
        expert += 1
        begin = end
        end = tl.load(offsets_ptr + expert, mask=expert < experts,
                      other=height)
    rows = begin + tile * M + tl.arange(0, M)
    cols = tl.program_id(0) % across * N + tl.arange(0, N)
    if begin + tile * M < end:
        # Past the end: the last row once more, which is not stored.
        x_rows = tl.minimum(rows, end - 1).to(tl.int64)[:, None] * inner
        w_ptr += (expert * inner).to(tl.int64) * columns
        acc = tl.zeros([M, N], tl.float32)
        for k in tl.range(0, tl.where(expert < experts, inner, 0), K):
            at = k + tl.arange(0, K)
            x = tl.load(x_ptr + x_rows + at[None, :],
                        mask=at[None, :] < inner, other=0.0)
            w = tl.load(w_ptr + at[:, None] * columns + cols[None, :],
                        mask=(at[:, None] < inner)
                        & (cols[None, :] < columns), other=0.0)
            acc = tl.dot(x, w, acc)
        tl.store(out_ptr + rows.to(tl.int64)[:, None] * columns
                 + cols[None, :], acc.to(out_ptr.dtype.element_ty),
                 mask=(rows[:, None] < end) & (cols[None, :] < columns))
    # [/hole]


def grouped_gemm(x, weights, offsets):
    """Multiply each expert's rows by its own matrix."""
    (height, inner), (experts, _, columns) = x.shape, weights.shape
    out = torch.empty((height, columns), dtype=x.dtype, device=x.device)
    # [hole]
    M, N, K = 128, 256, 64
    tiles = triton.cdiv(height, M) + experts  # enough, however rows lie
    grouped_kernel[(tiles * triton.cdiv(columns, N),)](
        x, weights, offsets, out, height, inner, columns, experts,
        M=M, N=N, K=K, num_warps=8, num_stages=3)
    # [/hole]
    return out


# [/exercise]
