"""The activations that an epilogue applies, in torch and as expressions to be fused."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Literal, get_args

import torch
import torch.nn.functional as F

from solutions.fusion.derivative import gradients
from solutions.fusion.expression import Node, add, mul, parsed, traced
from solutions.fusion.launch import backward_texts, computed

Activation = Literal["relu", "silu", "gelu", "gelu_tanh"]
NONE = "none"
_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    NONE: lambda x: x,
    "relu": torch.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}
# Traced here: within a call that wants a gradient, torch asks no placeholder.
_TEXTS = {name: str(traced(function, 1)) for name, function in _FUNCTIONS.items()}


def named(function: str, activation: Activation | None) -> str:
    """Return the name that kernels know an activation by.

    Raises:
        ValueError: another one.
    """
    name = NONE if activation is None else activation
    if name not in _FUNCTIONS:
        raise ValueError(
            f"{function}: activation is {activation!r}; wanted None or one of "
            f"{', '.join(get_args(Activation))}."
        )
    return name


def finished(
    product: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str,
    residual: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add a bias, activate, add a residual: where no epilogue could.

    Args:
        product: (rows, columns).
        bias: (columns).
        activation: as ``named`` has it.
        residual: (rows, columns).

    Returns:
        The result, and what the activation was applied to, in the product's dtype.

    Cost: on a GPU, all of one dtype, one kernel: product and residual read once, two
    results written once. Else a pass an operation.
    """
    given = [product, *(t for t in (bias, residual) if t is not None)]
    if product.device.type == "cuda" and len({t.dtype for t in given}) == 1:
        texts = _finish_texts(bias is not None, activation, residual is not None)
        pre, out = computed(texts, given, 0)
        return out, pre
    pre = product if bias is None else product + bias
    out = in_torch(pre, activation)
    return out if residual is None else out + residual, pre


@cache
def _finish_texts(bias: bool, activation: str, residual: bool) -> str:
    pre = add(Node("x0"), Node("x1")) if bias else Node("x0")
    text = _TEXTS[activation]
    out = parsed(text.replace("x0", str(pre)))
    if residual:
        out = add(out, Node("x2" if bias else "x1"))
    return f"{pre}\n{out}"


def in_torch(x: torch.Tensor, activation: str) -> torch.Tensor:
    """Apply an activation by torch's own function."""
    return _FUNCTIONS[activation](x)


def through(slope: torch.Tensor, pre: torch.Tensor, activation: str) -> torch.Tensor:
    """Go back through an activation: ``slope * activation'(pre)``, in one kernel.

    Cost: slope and pre read once, the result written once.
    """
    if activation == NONE:
        return slope
    text = _TEXTS[activation]
    return computed(backward_texts(text, 1, (0,)), [pre, slope], 0)[0]


def through_layer(
    slope: torch.Tensor, pre: torch.Tensor, activation: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute ``activation(pre)`` again, and go back through it, by one kernel.

    Cost: slope and pre read once, two results written once.
    """
    text = _TEXTS[activation]
    texts = f"{text}\n{backward_texts(text, 1, (0,))}"
    hidden, inner = computed(texts, [pre, slope], 0)
    return hidden, inner


def through_gate(
    slope: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, activation: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute ``hidden = activation(gate) * up`` again, and its gradients.

    Returns:
        hidden, the gradient of gate, the gradient of up, all by one kernel.

    Cost: three tensors read once, three written once.
    """
    hidden, to_gate, to_up = computed(_gate_texts(activation), [gate, up, slope], 0)
    return hidden, to_gate, to_up


@cache
def _gate_texts(activation: str) -> str:
    hidden = mul(parsed(_TEXTS[activation]), Node("x1"))
    return "\n".join(map(str, (hidden, *gradients(hidden, Node("x2"), 2))))
