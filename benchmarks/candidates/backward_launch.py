"""Launch the fused backward: prepare, one pass over tiles of keys, finish."""

from __future__ import annotations

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from benchmarks.candidates.backward_ends import finish_kernel, prepare_kernel
from benchmarks.candidates.backward_fused import fused_kernel
from solutions.flash_attention_triton import hopper
from solutions.flash_attention_triton.options import UNBOUNDED, Options

LOG2E = 1.4426950408889634
ROWS, KEYS = 64, 128
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def refuses(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, grad: torch.Tensor,
    options: Options,
) -> str | None:  # fmt: skip
    """Say why the fused kernel cannot do what is asked; None where it can."""
    if q.shape[3] != 128:
        return f"it takes head_dim 128, not {q.shape[3]}"
    reason = hopper.refuses(q, k, v, options)
    return reason or hopper.refuses(grad, k, v, options)


def backward_fused(
    grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    out: torch.Tensor, lse: torch.Tensor, options: Options, ordered: bool = True,
    bulk: bool = False,
) -> Gradients:  # fmt: skip
    """Return dq, dk and dv of attention at head_dim 128; ask ``refuses`` beforehand.

    Args:
        grad: gradient of out; q's shape and dtype.
        q: (batch, heads, q_len, 128), float16 or bfloat16.
        k: (batch, kv_heads, kv_len, 128).
        v: of k's shape.
        out: what ``forward`` returned.
        lse: likewise, fp32 (batch, heads, q_len).
        options: none but causal and scale.
        ordered: add to dQ in a fixed order, so that every run gives the same bits.
        bulk: let TMA add to dQ, from shared memory; otherwise registers are added.

    Returns:
        dq, dk, dv, contiguous, of the shape and dtype of q, k, v.

    Cost: 10 * batch * heads * q_len * kv_len * 128 FLOPs, half under a causal mask, all
    of them due; batch * heads * q_len * 130 floats of extra memory, most for dQ's sum.

    Source: Dao, *FlashAttention-2* (2023), algorithm 2; Shah et al., *FlashAttention-3*
    (2024), section 3.
    """
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1:3]
    out, lse = out.contiguous(), lse.contiguous()
    dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    dk = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    dv = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    tiles = batch * heads * triton.cdiv(q_len, ROWS)
    stats = torch.empty((tiles, 2 * ROWS), dtype=torch.float32, device=q.device)
    # One tile more than there are: a walk's first sum, of nothing, goes there.
    sums = torch.empty((tiles + 1, ROWS * head_dim), device=q.device)
    turns = torch.empty(tiles + 1, dtype=torch.int32, device=q.device)
    prepare_kernel[(tiles,)](
        out, grad, lse, stats, sums, turns, *grad.stride()[:3], heads, q_len,
        D=head_dim, num_warps=4,
    )  # fmt: skip

    kind = gl.float16 if q.dtype == torch.float16 else gl.bfloat16
    block = [1, 1, ROWS, head_dim]
    layout = gl.NVMMASharedLayout.get_default_for(block, kind)

    def describe(tensor: torch.Tensor) -> TensorDescriptor:
        return TensorDescriptor.from_tensor(tensor, block, layout)

    flat = gl.NVMMASharedLayout(0, 32, 2)
    bounded = options.bounded[1]
    fused_kernel[(triton.cdiv(kv_len, KEYS) * batch * kv_heads,)](
        describe(q), describe(k), describe(v), describe(grad),
        TensorDescriptor.from_tensor(stats, [1, 2 * ROWS], flat),
        describe(dk), describe(dv),
        TensorDescriptor.from_tensor(
            sums.view(-1, ROWS), [ROWS, ROWS], gl.NVMMASharedLayout(128, 32, 2)
        ),
        sums, turns, batch, heads, heads // kv_heads,
        q_len, kv_len, options.last if bounded else UNBOUNDED, options.scale,
        options.scale * LOG2E, D=head_dim, BOUNDED=bounded, ORDERED=ordered, BULK=bulk,
        REGISTERS=240, num_warps=4,
    )  # fmt: skip
    finish_kernel[(tiles,)](
        sums, dq, q_len, options.scale, D=head_dim, BULK=bulk, num_warps=4
    )
    return dq, dk, dv
