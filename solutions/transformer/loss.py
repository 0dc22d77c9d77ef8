"""The last product and cross entropy, with only a part of the logits at a time."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from solutions.transformer.kernels import cross_entropy_kernel

LOGITS = 1 << 28
"""Bytes of logits that are in memory together. Tokens beyond them come later, and the
weight's gradient is then added up in float32, which is read and written each time."""


def linear_cross_entropy(
    x: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    rows: int | None = None,
) -> torch.Tensor:
    """Return the mean cross entropy of ``softmax(x weightᵀ)`` and its targets.

        loss = mean over t of  log sum over j of exp(z[t, j]) - z[t, target[t]]

    Logits are made for ``rows`` tokens, turned into their own gradient where they
    lie, multiplied back, and forgotten: both gradients are there when forward ends.

    Args:
        x: (tokens, features).
        weight: (vocabulary, features), of x's dtype.
        targets: int64 (tokens); -100 counts for nothing.
        rows: tokens at a time; absent, as many as have 256 MB of logits.

    Returns:
        The mean over targets that count, float32 (float64 for float64).

    Raises:
        ValueError: shapes that do not fit.

    Cost: 6 tokens features vocabulary FLOPs with the gradients; logits of ``rows``
    tokens in memory, and weight's gradient, in float32 if they are not all.

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
    rows = rows or max(1, LOGITS // max(1, weight.shape[0] * weight.itemsize))
    keep = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    made: torch.Tensor = _loss(x, weight, targets, rows, keep)[0]
    return made


# Not the course's ``operator``: a few calls a step, and nothing to gain by recording
# what each does.
@torch.library.custom_op("kernelwright::linear_cross_entropy", mutates_args=())
def _loss(
    x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, rows: int, keep: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute both gradients on the way, if they are kept: backward only scales.

    They are those of the losses' sum. Backward divides by their number when it scales:
    that is one pass over both, and float16 would round a share of 1 / 4096 to nothing.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    losses = torch.empty(len(x), dtype=wide, device=x.device)
    dx, dw = _slopes(x, weight, rows, keep)
    for first in range(0, len(x), rows):
        part = slice(first, first + rows)
        logits = x[part] @ weight.T
        gradient_of_logits(logits, targets[part], losses[part])
        if keep:
            torch.mm(logits, weight, out=dx[part])
            if len(x) <= rows:
                torch.mm(logits.T, x, out=dw)
            else:
                dw += logits.T @ x[part]
    count = (targets >= 0).sum().to(wide)
    return losses.sum() / count, count, dx, dw


@_loss.register_fake
def _(
    x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, rows: int, keep: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    wide = torch.promote_types(x.dtype, torch.float32)
    loss, count = (x.new_empty((), dtype=wide) for _ in range(2))
    return loss, count, *_slopes(x, weight, rows, keep)


def _slopes(
    x: torch.Tensor, weight: torch.Tensor, rows: int, keep: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Make room for both gradients; the weight's is added up if there are parts."""
    shapes = (x.shape, weight.shape) if keep else ((0,), (0,))
    dx = x.new_empty(shapes[0])
    if 0 < len(x) <= rows:
        return dx, weight.new_empty(shapes[1])
    wide = torch.promote_types(x.dtype, torch.float32)
    return dx, weight.new_zeros(shapes[1], dtype=wide)


def _keep_slopes(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.dtype = inputs[1].dtype
    ctx.mark_non_differentiable(*output[1:])


def _gradient(ctx: Any, slope: torch.Tensor, *_: Any) -> tuple[Any, ...]:
    count, dx, dw = ctx.saved_tensors
    scale = slope / count
    return dx * scale, (dw * scale).to(ctx.dtype), None, None, None


_loss.register_autograd(_gradient, setup_context=_keep_slopes)


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
