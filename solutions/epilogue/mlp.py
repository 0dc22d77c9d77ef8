"""Two layers with the activation between them: what is kept is what must be.

In eager PyTorch the backward pass finds x, the pre-activation and the hidden layer in
memory; of a gated layer x, both products, the activated one and the hidden layer. Here
the hidden layer is computed again of the pre-activations, by the kernel that goes back
through the activation and has them in registers anyway.
"""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.operators import operator
from solutions.epilogue.activations import in_torch, through_gate, through_layer
from solutions.epilogue.product import by_rows, hopper, multiplied

CHUNK = 4096
"""Rows that a gated layer's backward pass takes at a time, to hold less at once."""


@operator("mlp")
def mlp_operator(
    x: torch.Tensor,
    first: torch.Tensor,
    first_bias: torch.Tensor | None,
    second: torch.Tensor,
    second_bias: torch.Tensor | None,
    activation: str,
    keep: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the result, and the first layer's pre-activation if it is kept."""
    hidden, pre = multiplied(x, first, first_bias, activation, keep=keep)
    out, _ = multiplied(hidden, second, second_bias)
    return out, x.new_empty(0) if pre is None else pre


@mlp_operator.register_fake
def _(
    x: torch.Tensor, first: torch.Tensor, first_bias: Any, second: torch.Tensor,
    second_bias: Any, activation: str, keep: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    kept = (x.shape[0], first.shape[0]) if keep else (0,)
    return x.new_empty((x.shape[0], second.shape[0])), x.new_empty(kept)


@operator("mlp_backward")
def _mlp_backward(
    slope: torch.Tensor,
    pre: torch.Tensor,
    second: torch.Tensor,
    activation: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the hidden layer, computed again, and the pre-activation's gradient."""
    return through_layer(slope @ second, pre, activation)


@_mlp_backward.register_fake
def _(
    slope: torch.Tensor, pre: torch.Tensor, second: torch.Tensor, activation: str
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(pre), torch.empty_like(pre)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, first, first_bias, second, _, ctx.activation, ctx.kept = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # else zeros are written, of what was kept
    ctx.save_for_backward(x, first, first_bias, second, output[1])


def _gradient(
    ctx: Any, slope: torch.Tensor | None, _: Any
) -> tuple[torch.Tensor | None, ...]:
    if slope is None:
        return (None,) * len(ctx.needs_input_grad)
    x, first, first_bias, second, pre = ctx.saved_tensors
    of_x, of_first, of_first_bias, of_second, of_second_bias, *_ = ctx.needs_input_grad
    if not ctx.kept:
        pre = _again(x, first, first_bias)
    slope = slope.contiguous()
    hidden, inner = _mlp_backward(slope, pre, second, ctx.activation)
    return (
        inner @ first if of_x else None,
        inner.mT @ x if of_first else None,
        inner.sum(0) if of_first_bias else None,
        slope.mT @ hidden if of_second else None,
        slope.sum(0) if of_second_bias else None,
        None,
        None,
    )


mlp_operator.register_autograd(_gradient, setup_context=_keep)


@operator("pre_activation")
def _again(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """Compute a pre-activation that was not kept."""
    return multiplied(x, weight, bias)[0]


_again.register_fake(lambda x, w, b: x.new_empty((x.shape[0], w.shape[0])))


@operator("gated_mlp")
def gated_operator(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    activation: str,
    keep: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the result, and both products if they are kept."""
    hidden, gates, ups = _gated(x, gate, up, activation, keep)
    out, _ = multiplied(hidden, down)
    return out, *(x.new_empty(0) if one is None else one for one in (gates, ups))


@gated_operator.register_fake
def _(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor,
    activation: str, keep: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    kept = (x.shape[0], gate.shape[0]) if keep else (0,)
    out = x.new_empty((x.shape[0], down.shape[0]))
    return out, x.new_empty(kept), x.new_empty(kept)


def _gated(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, activation: str, keep: bool
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    x, gate, up = by_rows(x), by_rows(gate), by_rows(up)
    reach = hopper is not None and not any(hopper.refuses(x, w) for w in (gate, up))
    if reach:
        from solutions.epilogue.hopper_gated import gated

        return gated(x, gate, up, activation, keep=keep)
    gates, ups = (multiplied(x, w)[0] for w in (gate, up))
    wide = torch.promote_types(x.dtype, torch.float32)
    hidden = (in_torch(gates.to(wide), activation) * ups.to(wide)).to(x.dtype)
    return hidden, gates if keep else None, ups if keep else None


@operator("gated_mlp_backward")
def _gated_backward(
    slope: torch.Tensor,
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    gates: torch.Tensor,
    ups: torch.Tensor,
    activation: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return all gradients: the library's products, and one kernel between them."""
    of_x = torch.empty_like(x)
    weights = [torch.empty_like(w) for w in (gate, up, down)]
    for first in range(0, max(1, len(x)), CHUNK):
        rows = slice(first, first + CHUNK)
        hidden, to_gate, to_up = through_gate(
            slope[rows] @ down, gates[rows], ups[rows], activation
        )
        torch.mm(to_gate, gate, out=of_x[rows])
        of_x[rows].addmm_(to_up, up)
        pairs = ((to_gate, x[rows]), (to_up, x[rows]), (slope[rows], hidden))
        for into, (a, b) in zip(weights, pairs, strict=True):
            into.addmm_(a.mT, b, beta=1.0 if first else 0.0)
        del hidden, to_gate, to_up, pairs  # before the next rows' are made
    return of_x, *weights


@_gated_backward.register_fake
def _(
    slope: torch.Tensor, x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor,
    down: torch.Tensor, *kept: Any,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    return tuple(torch.empty_like(t) for t in (x, gate, up, down))


def _keep_gated(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, gate, up, down, ctx.activation, ctx.kept = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, gate, up, down, *output[1:])


def _gated_gradient(
    ctx: Any, slope: torch.Tensor | None, *_: Any
) -> tuple[torch.Tensor | None, ...]:
    if slope is None:
        return (None,) * len(ctx.needs_input_grad)
    x, gate, up, down, gates, ups = ctx.saved_tensors
    if not ctx.kept:
        gates, ups = _again(x, gate, None), _again(x, up, None)
    found = _gated_backward(
        slope.contiguous(), x, gate, up, down, gates, ups, ctx.activation
    )
    return (*found, None, None)


gated_operator.register_autograd(_gated_gradient, setup_context=_keep_gated)
