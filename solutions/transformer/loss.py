"""The last product and cross entropy, with only a part of the logits at a time."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from solutions.transformer.kernels import cross_entropy_kernel

ROWS = 1024
"""Tokens whose logits are in memory together."""


def linear_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, rows: int = ROWS
) -> torch.Tensor:
    """Return the mean cross entropy of ``softmax(x weightᵀ)`` and its targets.

        loss = mean over t of  log sum over j of exp(z[t, j]) - z[t, target[t]]

    Logits are made for ``rows`` tokens, turned into their own gradient where they
    lie, multiplied back, and forgotten: both gradients are there when forward ends.

    Args:
        x: (tokens, features).
        weight: (vocabulary, features), of x's dtype.
        targets: int64 (tokens); -100 counts for nothing.
        rows: tokens at a time.

    Returns:
        The mean over targets that count, float32 (float64 for float64).

    Raises:
        ValueError: shapes that do not fit.

    Cost: 6 tokens features vocabulary FLOPs with the gradients; logits of ``rows``
    tokens in memory, and weight's gradient in float32.

    Source: Hsu and others, Liger Kernel (2024), section 3.2: a loss by chunks.
    """
    if x.dim() != 2 or weight.dim() != 2 or x.shape[1] != weight.shape[1]:
        raise ValueError(
            f"linear_cross_entropy: x has shape {tuple(x.shape)} and weight "
            f"{tuple(weight.shape)}; wanted (tokens, features) and (vocabulary, "
            "features)."
        )
    if targets.shape != x.shape[:1]:
        raise ValueError(
            f"linear_cross_entropy: targets have shape {tuple(targets.shape)}; wanted "
            f"({len(x)},), one a token."
        )
    made: torch.Tensor = _Loss.apply(x, weight, targets, rows)
    return made


class _Loss(torch.autograd.Function):
    """Compute both gradients on the way: backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor,
        rows: int,
    ) -> torch.Tensor:  # fmt: skip
        wanted = ctx.needs_input_grad[:2]
        wide = torch.promote_types(x.dtype, torch.float32)
        losses = torch.empty(len(x), dtype=wide, device=x.device)
        dx = torch.empty_like(x) if wanted[0] else None
        dw = torch.zeros_like(weight, dtype=wide) if wanted[1] else None
        for first in range(0, len(x), rows):
            part = slice(first, first + rows)
            logits = x[part] @ weight.T
            gradient_of_logits(logits, targets[part], losses[part])
            if dx is not None:
                torch.mm(logits, weight, out=dx[part])
            if dw is not None:
                dw += logits.T @ x[part]
        count = (targets >= 0).sum()
        ctx.save_for_backward(dx, dw, count)
        ctx.dtype = weight.dtype
        return losses.sum() / count

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> tuple[Any, ...]:
        dx, dw, count = ctx.saved_tensors
        scale = slope / count
        if dx is not None:
            dx = dx * scale.to(dx.dtype)
        if dw is not None:
            dw = (dw * scale).to(ctx.dtype)
        return dx, dw, None, None


def gradient_of_logits(
    logits: torch.Tensor, targets: torch.Tensor, losses: torch.Tensor
) -> None:
    """Write each row's loss, and turn its logits into the loss's gradient."""
    if not logits.is_cuda or logits.dtype == torch.float64:
        wide = logits.to(losses.dtype)
        losses.copy_(F.cross_entropy(wide, targets, reduction="none"))
        wide = wide.softmax(-1)
        counts = targets >= 0
        wide[torch.arange(len(wide)), targets.clamp(min=0)] -= 1
        logits.copy_(wide * counts[:, None])
        return
    launch_cross_entropy(logits, targets, losses)


def launch_cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor, losses: torch.Tensor
) -> None:
    """Do the same in one kernel, a program a row."""
    size = logits.shape[1]
    block = min(4096, max(16, 1 << (size - 1).bit_length()))
    cross_entropy_kernel[(len(logits),)](
        logits, targets, losses, 1.0, size, BLOCK=block, num_warps=8
    )
