"""A convolution and what follows it at once, as an operator with its gradient."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from kernelwright.operators import operator
from solutions.epilogue.activations import NONE, in_torch, through

try:  # Gluon is an experimental part of Triton: it may be absent, or have moved
    from solutions.epilogue import hopper_conv
except ImportError:  # pragma: no cover
    hopper_conv = None  # type: ignore[assignment]


@operator("conv2d_bias_act")
def conv_operator(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: list[int],
    padding: list[int],
    activation: str,
) -> torch.Tensor:
    """Convolve (images, channels, rows, columns); the result's channels come last."""
    if hopper_conv is not None and stride[0] == stride[1] and padding[0] == padding[1]:
        pixels = x.permute(0, 2, 3, 1).contiguous()
        places = weight.permute(0, 2, 3, 1).contiguous()
        if hopper_conv.refuses(pixels, places, stride[0]) is None:
            return hopper_conv.convolved(
                pixels, places, None if bias is None else bias.contiguous(),
                stride[0], padding[0], activation,
            ).permute(0, 3, 1, 2)  # fmt: skip
    wide = x.dtype
    if x.device.type == "cpu":
        wide = torch.promote_types(x.dtype, torch.float32)
    out = F.conv2d(
        x.to(wide), weight.to(wide), None if bias is None else bias.to(wide), stride,
        padding,
    )  # fmt: skip
    out = in_torch(out, activation).to(x.dtype)
    return _last(out)


@conv_operator.register_fake
def _(
    x: torch.Tensor, weight: torch.Tensor, bias: Any, stride: list[int],
    padding: list[int], activation: str,
) -> torch.Tensor:  # fmt: skip
    high, wide = (
        (size + 2 * pad - edge) // step + 1
        for size, pad, edge, step in zip(
            x.shape[2:], padding, weight.shape[2:], stride, strict=True
        )
    )
    shape = (x.shape[0], weight.shape[0], high, wide)
    return _last(x.new_empty(shape))


@operator("conv2d_bias_act_backward")
def _backward(
    slope: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    stride: list[int],
    padding: list[int],
    activation: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Go back through the activation by one kernel, then by the library's."""
    if activation not in (NONE, "relu"):  # of ReLU the slope is seen in the result
        out = conv_operator.launch(x, weight, bias, stride, padding, NONE)
    if activation != NONE:
        inner = (t.permute(0, 2, 3, 1).contiguous() for t in (slope, out))
        slope = through(*inner, activation).permute(0, 3, 1, 2)
    of_x, of_weight, of_bias = torch.ops.aten.convolution_backward(
        slope, x, weight, [weight.shape[0]], stride, padding, [1, 1], False, [0, 0], 1,
        [True, True, True],
    )  # fmt: skip
    return _last(of_x), _last(of_weight), of_bias


@_backward.register_fake
def _(
    slope: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    of_x, of_weight = (_last(t.new_empty(t.shape)) for t in (x, weight))
    return of_x, of_weight, x.new_empty(weight.shape[0])


def _last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, weight, bias, *ctx.rest = inputs
    ctx.save_for_backward(x, weight, bias, output)


def _gradient(ctx: Any, slope: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    found = _backward(slope, *ctx.saved_tensors, *ctx.rest)
    wanted = (
        one if needed else None
        for one, needed in zip(found, ctx.needs_input_grad, strict=False)
    )
    return (*wanted, None, None, None)


conv_operator.register_autograd(_gradient, setup_context=_keep)
