"""A layer of experts over the chapter's own rungs, with its gradient.

Slower than ``moe_mlp``, and simpler: tokens are permuted three times, the matrices are
transposed by a copy, and their gradients are a loop over experts.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

import kernelwright as kw
from solutions.moe.ragged_gemm import grouped_gemm


def _kernel(name: str) -> kw.cuda.Kernel:
    text = Path(__file__).with_name(f"{name}.cu").read_text(encoding="utf-8")
    return kw.cuda.compile(text, name=f"{name}.cu")[name]


expert_offsets, permute_tokens = _kernel("expert_offsets"), _kernel("permute_tokens")


# fmt: off
# [exercise:moe_layer]
def offsets_of(experts, count):
    """Return where the rows of each of `count` experts end."""
    offsets = torch.empty(count, dtype=torch.int32,
                          device=experts.device)
    expert_offsets[1, 256](experts, offsets, experts.numel(), count)
    return offsets


def permute(x, experts, offsets):
    """Copy x's rows to their experts; return them and each pair's row."""
    (tokens, k), d = experts.shape, x.shape[1]
    rows = torch.empty_like(experts)
    moved = x.new_empty(tokens * k, d)
    # A float4 holds eight numbers of 16 bits.
    packs = x.contiguous().view(torch.float32)
    permute_tokens[len(offsets), 256](packs, experts, offsets, rows,
                                      moved.view(torch.float32),
                                      tokens * k, k, d // 8)
    return moved, rows


class MoELayer(torch.autograd.Function):
    """All experts as one step of autograd."""

    @staticmethod
    def forward(ctx, x, weights, experts, gate_up, down):
        """Return (tokens, d), fp16; keep what backward needs."""
        # [hole]
        offsets = offsets_of(experts, len(down))
        moved, rows = permute(x, experts, offsets)
        both = grouped_gemm(moved, gate_up, offsets)
        gate, up = both.float().chunk(2, 1)
        hidden = (F.silu(gate) * up).half()
        y = grouped_gemm(hidden, down, offsets)
        ctx.save_for_backward(x, weights, experts, gate_up, down,
                              both, rows, offsets)
        return (weights[..., None] * y[rows]).sum(1).half()
        # [/hole]

    @staticmethod
    def backward(ctx, grad):
        """Return the gradients of forward's arguments."""
        # [hole]
        (x, weights, experts, gate_up, down,
         both, rows, offsets) = ctx.saved_tensors
        moved, _ = permute(x, experts, offsets)
        slopes, _ = permute(grad, experts, offsets)
        u = grouped_gemm(slopes, down.mT.contiguous(), offsets).float()
        gate, up = both.float().chunk(2, 1)
        share = gate.sigmoid()
        hidden = gate * share * up
        d_weights = (hidden * u).sum(1)[rows]
        weight = torch.empty_like(u[:, :1])
        weight[rows.flatten(), 0] = weights.flatten()
        d_hidden = weight * u
        d_gate = d_hidden * up * share * (1 + gate * (1 - share))
        d_up = d_hidden * gate * share
        d_both = torch.cat((d_gate, d_up), 1).half()
        d_moved = grouped_gemm(d_both, gate_up.mT.contiguous(), offsets)
        d_x = d_moved[rows].float().sum(1).half()
        weighed = (weight * hidden).half()
        d_gate_up = torch.empty_like(gate_up)
        d_down = torch.empty_like(down)
        begin = 0
        for e, end in enumerate(offsets.tolist()):
            own = slice(begin, end)
            d_gate_up[e] = moved[own].mT @ d_both[own]
            d_down[e] = weighed[own].mT @ slopes[own]
            begin = end
        return d_x, d_weights, None, d_gate_up, d_down
        # [/hole]


def moe_layer(x, weights, experts, gate_up, down):
    """Return the experts' results, weighed: (tokens, d), fp16."""
    return MoELayer.apply(x, weights, experts, gate_up, down)


# [/exercise]
