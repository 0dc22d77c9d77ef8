"""One step of training around a learner's function: forward, backward, what is kept."""

from __future__ import annotations

from typing import Any

import torch

from autograder.worker.entry import WrongReturn


def adapt_product(
    mul_tanh: Any, x: torch.Tensor, y: torch.Tensor, grad: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return out, the gradients of x and y, and how many numbers were kept for them.

    What is kept is seen where autograd is given it; what a function puts elsewhere is
    not, and counts as 0.
    """
    kept = 0

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.numel()
        return tensor

    a, b = x.detach().requires_grad_(), y.detach().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = mul_tanh(a, b)
    if not isinstance(out, torch.Tensor):
        raise WrongReturn(
            f"mul_tanh returned {type(out).__name__}; wanted a tensor, like x."
        )
    if out.grad_fn is None:
        raise WrongReturn(
            "mul_tanh returned a tensor that autograd knows nothing of; wanted that of "
            "MulTanh.apply(x, y)."
        )
    if out.shape != x.shape:
        raise WrongReturn(
            f"mul_tanh returned shape {tuple(out.shape)}; wanted {tuple(x.shape)}."
        )
    dx, dy = torch.autograd.grad(
        out, (a, b), grad.expand_as(out), materialize_grads=True
    )
    # Of nothing, nothing is kept; and an empty answer needs no kernel.
    told = torch.full((min(1, x.numel()),), kept, device=x.device)
    return out.detach(), dx, dy, told
