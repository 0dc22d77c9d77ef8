"""One step of training around a learner's function: forward, backward, what is kept."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from autograder.worker.adapters.unchanged import adapt_unchanged
from autograder.worker.entry import WrongReturn
from kernelwright.torch_mode import QuickMode

_ELEMENTWISE = ("add", "exp", "mul", "sigmoid", "silu", "sub", "sum")

Tensors = tuple[torch.Tensor, ...]


def adapt_product(
    mul_tanh: Any, x: torch.Tensor, y: torch.Tensor, grad: torch.Tensor
) -> Tensors:
    """Return out, the gradients of x and y, and how many numbers were kept for them.

    What is kept is seen where autograd is given it; what a function puts elsewhere is
    not, and counts as 0.
    """
    made, kept = _step(mul_tanh, "mul_tanh", "MulTanh.apply(x, y)", (x, y), grad)
    # Of nothing, nothing is kept; and an empty answer needs no kernel.
    numbers = sum(one.numel() for one in kept)
    told = torch.full((min(1, x.numel()),), numbers, device=x.device)
    return made[0].detach(), *made[1:], told


def adapt_update(train_step: Any, *given: Any) -> Any:
    """Call one step of training, of which nothing but its results may remain."""
    found = adapt_unchanged(train_step, *given)
    loss = found[0] if isinstance(found, tuple | list) and found else None
    if isinstance(loss, torch.Tensor) and loss.requires_grad:
        raise WrongReturn(
            "the loss requires a gradient, and holds all that it was made of in memory "
            "for as long as someone keeps it; wanted loss.detach()."
        )
    return found


def adapt_layer(moe_layer: Any, *arguments: torch.Tensor) -> Tensors:
    """Return out and the gradients of x, weights, gate_up and down.

    Ragged products are counted where they are called. What is kept beside the inputs
    may have a half for each pair and column of ``gate_up``, and little more.
    """
    *given, grad = arguments
    experts, gate_up = given[2], given[3]
    names = inspect.unwrap(moe_layer).__globals__
    product, calls = names["grouped_gemm"], 0

    def counted(*operands: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        return product(*operands, **named)

    names["grouped_gemm"] = counted
    try:
        with _InHalves() as between:
            made, kept = _step(moe_layer, "moe_layer", "MoELayer.apply", given, grad)
    finally:
        names["grouped_gemm"] = product
    if between.rounded:
        raise WrongReturn(
            f"{between.rounded} was computed in fp16, which rounds in the middle; "
            "wanted all that lies between two products in fp32: .float() of what a "
            "product gives, .half() of what the next one takes."
        )
    for what, value in getattr(made[0].grad_fn, "__dict__", {}).items():
        if isinstance(value, torch.Tensor):
            raise WrongReturn(
                f"a tensor is kept as ctx.{what}, and autograd was not told: it would "
                "not see a change in place. Use ctx.save_for_backward."
            )
    inputs = {one.untyped_storage().data_ptr() for one in given}
    own = [one for one in kept if one.untyped_storage().data_ptr() not in inputs]
    stored = {one.untyped_storage().data_ptr(): one.untyped_storage() for one in own}
    size = sum(one.nbytes() for one in stored.values())
    numbers = sum(one.numel() for one in own if one.is_floating_point())
    most = 2 * experts.numel() * (gate_up.shape[2] + 8) + 8 * len(gate_up)
    if size > most:
        raise WrongReturn(
            f"{size:,} bytes are kept for backward beside the inputs; wanted at most "
            f"{most:,}: gates and ups in 16 bits, rows, offsets. Make the rest again."
        )
    if calls < 4:
        raise WrongReturn(
            f"your grouped_gemm was called {calls} times; wanted 4 products by it: two "
            "forward, and backward those that make u and the rows of dx."
        )
    if calls > 4 and numbers >= experts.numel() * gate_up.shape[2] > 0:
        raise WrongReturn(
            f"your grouped_gemm was called {calls} times, though gates and ups were "
            "kept; wanted 4 products. The last one's result is not needed again."
        )
    return made[0].detach(), *made[1:]


class _InHalves(QuickMode):
    """Note what is multiplied, added up or put through a function in fp16."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rounded = ""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        name = str(func).split(".")[1].rstrip("_")
        if name in _ELEMENTWISE and getattr(found, "dtype", None) == torch.half:
            self.rounded = self.rounded or name
        return found


def _step(
    function: Callable[..., Any],
    name: str,
    wanted: str,
    given: tuple[torch.Tensor, ...] | list[torch.Tensor],
    grad: torch.Tensor,
) -> tuple[Tensors, list[torch.Tensor]]:
    """Go forward and backward; return out and gradients, and what was kept."""
    kept: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    inputs = [one.detach().requires_grad_(one.dtype.is_floating_point) for one in given]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = function(*inputs)
    if not isinstance(out, torch.Tensor):
        raise WrongReturn(
            f"{name} returned {type(out).__name__}; wanted a tensor, like x."
        )
    if out.grad_fn is None:
        raise WrongReturn(
            f"{name} returned a tensor that autograd knows nothing of; wanted that of "
            f"{wanted}."
        )
    if out.shape != given[0].shape:
        raise WrongReturn(
            f"{name} returned shape {tuple(out.shape)}; wanted {tuple(given[0].shape)}."
        )
    gradients = torch.autograd.grad(
        out,
        [one for one in inputs if one.requires_grad],
        grad.expand_as(out),
        materialize_grads=True,
    )
    return (out, *gradients), kept
