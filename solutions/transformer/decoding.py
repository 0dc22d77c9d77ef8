"""The few-token pass of a model: additions inside of norms, gates in one kernel."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from solutions.transformer.kernels import add_norm_kernel, gate_kernel


def add_norm(
    x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """Add y to x, where x lies, and return the sum's RMS norm. No gradients.

    Args:
        x: (..., width), contiguous; holds the sum afterwards.
        y: likewise.
        weight: (width).
        eps: added to the mean of squares.

    Cost: x and y read, x and the result written; two kernels of PyTorch in one.
    """
    out = torch.empty_like(x)
    width = x.shape[-1]
    add_norm_kernel[(x.numel() // width,)](
        x, y, weight, out, eps, WIDTH=width, BLOCK=1 << (width - 1).bit_length(),
        num_warps=8 if width > 1024 else 4,
    )  # fmt: skip
    return out


def gated(both: torch.Tensor) -> torch.Tensor:
    """Return ``silu(gate) * up`` of rows that hold the gates first. No gradients.

    Args:
        both: (..., 2 width), contiguous.
    """
    if not both.is_cuda:
        gate, up = both.chunk(2, -1)
        return F.silu(gate) * up
    return launch_gate(both)


def launch_gate(both: torch.Tensor) -> torch.Tensor:
    """Do the same in one kernel."""
    width = both.shape[-1] // 2
    out = both.new_empty(*both.shape[:-1], width)
    gate_kernel[(-(-width // 512), both.numel() // (2 * width))](
        both, out, width, BLOCK=512
    )
    return out


def fits(model: nn.Module, x: torch.Tensor) -> bool:
    """Say whether few tokens can go this way: on a GPU, without gradients."""
    ours = model.operations.norm == "ours"
    return ours and x.is_cuda and not torch.is_grad_enabled()
