"""Mixture of experts: tokens on their way to a few of many experts, and back.

    out[t] = sum over j of weights[t, j] expert[chosen[t, j]](x[t])

A layer of 64 experts, of which a token takes 8, has the parameters of a layer eight
times as wide as the one whose time it takes. What it takes besides is order: tokens are
sorted by expert, so that each expert's product is one of matrices.

    weights, chosen = route(logits, k)         # softmax, the k largest
    moved = permute(x, chosen, experts)        # expert 0's tokens, expert 1's, ...
    y = grouped_gemm(moved.x, matrices, moved.offsets)
    out = unpermute(y, moved.rows, weights)
    layer = MoE(d_model, d_ff, experts, k)     # all of it, and its gradient

    route.cu            softmax and the k largest, a warp to a token
    scan.cu             sums up to each number, in one pass with look-back
    permute.cu          a counting sort by expert, and the rows that it moves
    tiles.cu            a list of tiles, so that the host need not know who has how many
    hopper_grouped.py   the product with ragged experts, in Gluon
    hopper_grouped_weights.py    its weights' gradient
    grouped_triton.py   both for other GPUs, and for fp32
    experts.py          all of it from tokens to tokens, with its gradient
    on_cpu.py           what the CUDA kernels do, for CPU tensors

When not to use it: for a few tokens, where a layer's time is its weights' bytes, and
tiles of 128 rows stay nearly empty.
"""

from solutions.moe.functions import (
    Permuted,
    grouped_gemm,
    load_balance_loss,
    moe_mlp,
    permute,
    route,
    unpermute,
)
from solutions.moe.modules import MoE
from solutions.moe.scan import prefix_sum

__all__ = [
    "MoE",
    "Permuted",
    "grouped_gemm",
    "load_balance_loss",
    "moe_mlp",
    "permute",
    "prefix_sum",
    "route",
    "unpermute",
]
