"""The functions: what they take is checked, shapes are flattened, gradients flow."""

from __future__ import annotations

import torch

from kernelwright.operators import autocast, check_tensor, recorded
from solutions.epilogue.activations import Activation, named
from solutions.epilogue.convolution import conv_operator
from solutions.epilogue.mlp import gated_operator, mlp_operator
from solutions.epilogue.product import linear_operator

Pair = int | tuple[int, int]


@recorded
def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
    residual: torch.Tensor | None = None,
    *,
    recompute: bool = False,
) -> torch.Tensor:
    """Compute a layer at once: ``activation(x weightᵀ + bias) + residual``.

    Args:
        x: (..., in features); fp16, bf16, fp32 or fp64.
        weight: (out features, in features), of x's dtype and device.
        bias: (out features).
        activation: ``relu``, ``silu``, ``gelu`` or ``gelu_tanh``.
        residual: (..., out features).
        recompute: compute the pre-activation again in the backward pass instead of
            keeping it: one product more for rows * out features numbers less.

    Returns:
        (..., out features), contiguous.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: 2 rows in out FLOPs; x, weight and residual read, the result written, and the
    pre-activation with it where a gradient of GELU or SiLU is wanted. Elsewhere than on
    Hopper, in 16 bits, bias and activation are passes of their own.

    When not to use it: for fewer than some 64 rows, of which a tile has 128.
    """
    name = named("linear", activation)
    tensors = autocast(x, weight, bias, residual)
    _check("linear", x=tensors[0], weight=tensors[1], bias=tensors[2],
           residual=tensors[3])  # fmt: skip
    x, weight, bias, residual = tensors
    _fits("linear", "weight", weight, x.shape[-1], "x", x)
    _is_shaped("linear", "bias", bias, (weight.shape[0],))
    shape = (*x.shape[:-1], weight.shape[0])
    _is_shaped("linear", "residual", residual, shape)
    keep = not recompute and _needs_pre(name, residual, x, weight, bias)
    flat = None if residual is None else _rows(residual)
    out = linear_operator(_rows(x), weight, bias, flat, name, keep)[0]
    return out.view(shape)


def linear_gelu(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    approximate: str = "none",
) -> torch.Tensor:
    """Compute a layer and its GELU: ``gelu(x weightᵀ + bias)``.

    Args:
        x: (..., in features).
        weight: (out features, in features).
        bias: (out features).
        approximate: ``none``, or ``tanh``, as for ``torch.nn.functional.gelu``.

    Returns:
        (..., out features).

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: as ``linear``.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(
            f"linear_gelu: approximate is {approximate!r}; wanted 'none' or 'tanh'."
        )
    return linear(x, weight, bias, "gelu" if approximate == "none" else "gelu_tanh")


@recorded
def mlp(
    x: torch.Tensor,
    first: torch.Tensor,
    first_bias: torch.Tensor | None,
    second: torch.Tensor,
    second_bias: torch.Tensor | None = None,
    activation: Activation = "gelu",
    *,
    recompute: bool = False,
) -> torch.Tensor:
    """Compute two layers: ``activation(x firstᵀ + first_bias) secondᵀ + second_bias``.

    Args:
        x: (..., features); fp16, bf16, fp32 or fp64.
        first: (hidden, features).
        first_bias: (hidden), or none.
        second: (out features, hidden).
        second_bias: (out features).
        activation: of the hidden layer.
        recompute: keep nothing but x for the backward pass.

    Returns:
        (..., out features), contiguous.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: 2 rows hidden (features + out features) FLOPs. Kept for the backward pass: x
    and one number for each of the hidden layer, where eager PyTorch keeps two.
    """
    name = named("mlp", activation)
    x, first, first_bias, second, second_bias = autocast(
        x, first, first_bias, second, second_bias
    )
    _check("mlp", x=x, first=first, first_bias=first_bias, second=second,
           second_bias=second_bias)  # fmt: skip
    _fits("mlp", "first", first, x.shape[-1], "x", x)
    _fits("mlp", "second", second, first.shape[0], "first", first)
    _is_shaped("mlp", "first_bias", first_bias, (first.shape[0],))
    _is_shaped("mlp", "second_bias", second_bias, (second.shape[0],))
    given = (x, first, first_bias, second, second_bias)
    keep = not recompute and _wants_gradient(*given)
    out = mlp_operator(_rows(x), first, first_bias, second, second_bias, name, keep)[0]
    return out.view(*x.shape[:-1], second.shape[0])


@recorded
def gated_mlp(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    activation: Activation = "silu",
    *,
    recompute: bool = False,
) -> torch.Tensor:
    """Compute a gated layer, SwiGLU's: ``(activation(x gateᵀ) * (x upᵀ)) downᵀ``.

    Args:
        x: (..., features); fp16, bf16, fp32 or fp64.
        gate: (hidden, features).
        up: (hidden, features).
        down: (out features, hidden).
        activation: of the gate.
        recompute: keep nothing but x for the backward pass.

    Returns:
        (..., out features), contiguous.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: 2 rows hidden (2 features + out features) FLOPs. Kept for the backward pass: x
    and both products, where eager PyTorch keeps four of their size.

    Source: Shazeer, GLU Variants Improve Transformer (2020), equation 6.
    """
    name = named("gated_mlp", activation)
    x, gate, up, down = autocast(x, gate, up, down)
    _check("gated_mlp", x=x, gate=gate, up=up, down=down)
    _fits("gated_mlp", "gate", gate, x.shape[-1], "x", x)
    _is_shaped("gated_mlp", "up", up, tuple(gate.shape))
    _fits("gated_mlp", "down", down, gate.shape[0], "gate", gate)
    keep = not recompute and _wants_gradient(x, gate, up, down)
    out = gated_operator(_rows(x), gate, up, down, name, keep)[0]
    return out.view(*x.shape[:-1], down.shape[0])


@recorded
def conv2d_bias_act(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    activation: Activation | None = None,
) -> torch.Tensor:
    """Convolve, add a bias and activate: ``activation(conv2d(x, weight) + bias)``.

    Args:
        x: (images, channels, rows, columns); fp16, bf16, fp32 or fp64; channels that
            come last in memory (``torch.channels_last``) are read where they lie.
        weight: (out channels, channels, kernel rows, kernel columns).
        bias: (out channels).
        stride: pixels from one result to the next, down and across.
        padding: zeros around the image, above and below, left and right.
        activation: applied last.

    Returns:
        (images, out channels, out rows, out columns), channels last in memory.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: 2 * kernel size * channels FLOPs a number of the result. By the course's own
    kernel on Hopper in 16 bits, with channels by eights and a stride of 1 or 2; by the
    library's, and a pass more, elsewhere.
    """
    name = named("conv2d_bias_act", activation)
    x, weight, bias = autocast(x, weight, bias)
    _check("conv2d_bias_act", x=x, weight=weight, bias=bias)
    if x.dim() != 4 or weight.dim() != 4 or x.shape[1] != weight.shape[1]:
        raise ValueError(
            f"conv2d_bias_act: x has shape {tuple(x.shape)} and weight "
            f"{tuple(weight.shape)}; wanted (images, channels, rows, columns) and (out "
            "channels, channels, kernel rows, kernel columns)."
        )
    _is_shaped("conv2d_bias_act", "bias", bias, (weight.shape[0],))
    steps = _pair("stride", stride, 1)
    zeros = _pair("padding", padding, 0)
    for size, edge, pad in zip(x.shape[2:], weight.shape[2:], zeros, strict=True):
        if size + 2 * pad < edge or edge < 1:
            raise ValueError(
                f"conv2d_bias_act: a kernel of {tuple(weight.shape[2:])} does not fit "
                f"into {tuple(x.shape[2:])} pixels with a padding of {zeros}."
            )
    found: torch.Tensor = conv_operator(x, weight, bias, steps, zeros, name)
    return found


def _rows(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, x.shape[-1])


def _wants_gradient(*tensors: torch.Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in tensors
    )


def _needs_pre(
    name: str, residual: torch.Tensor | None, *tensors: torch.Tensor | None
) -> bool:
    """Say whether the backward pass will ask for what the activation was applied to."""
    seen_in_result = name == "relu" and residual is None
    return name != "none" and not seen_in_result and _wants_gradient(*tensors)


def _pair(name: str, value: Pair, least: int) -> list[int]:
    pair = [value, value] if isinstance(value, int) else list(value)
    if len(pair) != 2 or any(not isinstance(p, int) or p < least for p in pair):
        raise ValueError(
            f"conv2d_bias_act: {name} is {value!r}; wanted one whole number or two, "
            f"{least} at least."
        )
    return pair


def _check(function: str, **tensors: torch.Tensor | None) -> None:
    """Validate once, at the boundary: kernels do not."""
    x = tensors["x"]
    for name, t in tensors.items():
        if t is None:
            continue
        check_tensor(function, name, t)
        if t.dtype != x.dtype or t.device != x.device:
            raise ValueError(
                f"{function}: {name} is {t.dtype} on {t.device}, x {x.dtype} on "
                f"{x.device}; wanted the same: {name}.to(x)."
            )
    if x.dim() < 1:
        raise ValueError(f"{function}: x is one number; wanted (..., features).")


def _fits(
    function: str, name: str, weight: torch.Tensor, inner: int, to: str,
    other: torch.Tensor,
) -> None:  # fmt: skip
    if weight.dim() != 2 or weight.shape[1] != inner:
        raise ValueError(
            f"{function}: {name} has shape {tuple(weight.shape)} and {to} "
            f"{tuple(other.shape)}; wanted (out features, {inner}), as torch keeps it."
        )


def _is_shaped(
    function: str, name: str, tensor: torch.Tensor | None, shape: tuple[int, ...]
) -> None:
    if tensor is not None and tuple(tensor.shape) != tuple(shape):
        raise ValueError(
            f"{function}: {name} has shape {tuple(tensor.shape)}; wanted "
            f"{tuple(shape)}."
        )
