"""The functions: checks at the boundary, autograd, and launches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from kernelwright.operators import check_tensor, operator, recorded
from solutions.layernorm.launch import CTYPES, flag, forward_into, gradients_into, wide

__all__ = ["layer_norm", "layer_norm_relu", "rms_norm"]

_HALVES = (torch.float16, torch.bfloat16)


@recorded
def layer_norm(
    input: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Normalise the last dimensions: ``(x - mean) / sqrt(variance + eps) * w + b``.

    Args:
        input: (..., *normalized_shape); fp16, bf16, fp32 or fp64. A non-contiguous
            tensor is copied first, which costs one more pass over memory.
        normalized_shape: the shape of a row, or its length.
        weight: normalized_shape, input's dtype and device; ones when absent.
        bias: likewise; zeros when absent.
        eps: added to the variance, which is that of the row's own elements (divided
            by their number, not by one less).

    Returns:
        A contiguous tensor of input's shape, dtype and device.

    Raises:
        TypeError: not tensors, or of another dtype.
        ValueError: shapes, dtypes or devices that do not fit each other.

    Cost: 2 * n * itemsize bytes, about 10 * n FLOPs.

    Source: Ba, Kiros and Hinton, Layer Normalization (2016), equations 3 and 4.
    """
    row = _shape("layer_norm", normalized_shape)
    input, weight, bias = _autocast(input, weight, bias)
    _check("layer_norm", input, row, weight=weight, bias=bias)
    return _apply(input, weight, bias, row, eps, _Kind(rms=False, relu=False))


@recorded
def layer_norm_relu(
    input: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Normalise, then cut off below zero: ``max(0, layer_norm(x))``, in one kernel.

    Args:
        input: as for ``layer_norm``.
        normalized_shape: likewise.
        weight: likewise.
        bias: likewise.
        eps: likewise.

    Returns:
        A contiguous tensor of input's shape, dtype and device. A NaN stays one.

    Raises:
        TypeError: not tensors, or of another dtype.
        ValueError: shapes, dtypes or devices that do not fit each other.

    Cost: 2 * n * itemsize bytes; the ReLU's own pass, as many again, is saved.
    """
    row = _shape("layer_norm_relu", normalized_shape)
    input, weight, bias = _autocast(input, weight, bias)
    _check("layer_norm_relu", input, row, weight=weight, bias=bias)
    return _apply(input, weight, bias, row, eps, _Kind(rms=False, relu=True))


@recorded
def rms_norm(
    input: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """Divide the last dimensions by their root mean square, times the weight.

    Args:
        input: as for ``layer_norm``.
        normalized_shape: likewise.
        weight: likewise.
        eps: added to the mean of squares; when absent the machine epsilon of fp32
            (of fp64 for fp64), as in torch.

    Returns:
        A contiguous tensor of input's shape, dtype and device.

    Raises:
        TypeError: not tensors, or of another dtype.
        ValueError: shapes, dtypes or devices that do not fit each other.

    Cost: 2 * n * itemsize bytes, about 5 * n FLOPs.

    Source: Zhang and Sennrich, Root Mean Square Layer Normalization (2019), eq. 4.
    """
    row = _shape("rms_norm", normalized_shape)
    _check("rms_norm", input, row, weight=weight)
    if eps is None:
        eps = torch.finfo(wide(input.dtype)).eps
    return _apply(input, weight, None, row, eps, _Kind(rms=True, relu=False))


def _apply(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    row: tuple[int, ...],
    eps: float,
    kind: _Kind,
) -> torch.Tensor:
    given = (t for t in (x, weight, bias) if t is not None)
    keep = torch.is_grad_enabled() and any(t.requires_grad for t in given)
    y: torch.Tensor = _norm(x, weight, bias, math.prod(row), eps, *kind, keep)[0]
    return y


class _Kind(NamedTuple):
    """Which of the three: arguments of the kernels' templates."""

    rms: bool
    relu: bool


@operator("norm")
def _norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    columns: int,
    eps: float,
    rms: bool,
    relu: bool,
    keep: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return y, and with ``keep`` the rows' statistics for the backward pass."""
    x = x.contiguous()
    y = torch.empty_like(x)
    stats = _statistics(x, columns, keep)
    if x.numel():
        forward_into(
            x.view(-1, columns),
            _flat(weight),
            _flat(bias),
            y.view(-1, columns),
            stats if keep else None,
            eps,
            _template(rms, relu),
        )
    return y, stats


@operator("norm_backward")
def _norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    stats: torch.Tensor,
    columns: int,
    rms: bool,
    relu: bool,
    sums: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of x and, with ``sums``, of weight and bias."""
    x, dy = x.contiguous(), dy.contiguous()
    dx = torch.empty_like(x)
    dweight, dbias = (_gradient_of(t, sums, x) for t in (weight, bias))
    if x.numel():
        gradients_into(
            x.view(-1, columns),
            dy.view(-1, columns),
            _flat(weight),
            _flat(bias),
            stats,
            dx.view(-1, columns),
            _flat(dweight) if sums and weight is not None else None,
            _flat(dbias) if sums and bias is not None else None,
            _template(rms, relu),
        )
    else:
        dweight.zero_()
        dbias.zero_()
    return dx, dweight, dbias


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, bias, columns, _, rms, relu, _ = inputs
    ctx.save_for_backward(x, weight, bias, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.told = columns, rms, relu


def _gradient(ctx: Any, dy: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
    x, weight, bias, stats = ctx.saved_tensors
    wants = ctx.needs_input_grad
    sums = bool(wants[1] or wants[2])
    found = _norm_backward(dy, x, weight, bias, stats, *ctx.told, sums)
    wanted = (d if want else None for d, want in zip(found, wants, strict=False))
    return (*wanted, None, None, None, None, None)


@_norm.register_fake
def _(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    columns: int,
    eps: float,
    rms: bool,
    relu: bool,
    keep: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    return y, _statistics(x, columns, keep)


@_norm_backward.register_fake
def _(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    stats: torch.Tensor,
    columns: int,
    rms: bool,
    relu: bool,
    sums: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    return dx, _gradient_of(weight, sums, x), _gradient_of(bias, sums, x)


_norm.register_autograd(_gradient, setup_context=_keep)


def _statistics(x: torch.Tensor, columns: int, keep: bool) -> torch.Tensor:
    """Return room for three numbers a row, or none."""
    rows = x.numel() // columns if keep and columns else 0
    return x.new_empty((3, rows), dtype=wide(x.dtype))


def _gradient_of(
    parameter: torch.Tensor | None, sums: bool, x: torch.Tensor
) -> torch.Tensor:
    """Return room for a parameter's gradient, or none."""
    if parameter is None or not sums:
        return x.new_empty(0)
    return parameter.new_empty(parameter.shape)


def _flat(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.contiguous().view(-1)


def _template(rms: bool, relu: bool) -> str:
    return f"{flag(rms)}, {flag(relu)}"


def _autocast(*tensors: torch.Tensor | None) -> list[Any]:
    """Widen as torch's autocast does for layer norm on CUDA, and nowhere else."""
    first = tensors[0]
    on_gpu = isinstance(first, torch.Tensor) and first.is_cuda
    if not (on_gpu and torch.is_autocast_enabled("cuda")):
        return list(tensors)
    return [
        t.float() if isinstance(t, torch.Tensor) and t.dtype in _HALVES else t
        for t in tensors
    ]


def _shape(function: str, normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(normalized_shape, int):
        return (normalized_shape,)
    row = tuple(normalized_shape)
    if not row:
        raise ValueError(
            f"{function}: normalized_shape is empty; wanted the shape of a row: "
            "x.shape[-1:]."
        )
    return row


def _check(
    function: str,
    x: torch.Tensor,
    row: tuple[int, ...],
    **parameters: torch.Tensor | None,
) -> None:
    """Validate once, at the boundary: kernels do not."""
    check_tensor(function, "input", x, CTYPES)
    if tuple(x.shape[-len(row) :]) != row:
        raise ValueError(
            f"{function}: input has shape {tuple(x.shape)} and normalized_shape is "
            f"{row}; wanted (..., {', '.join(map(str, row))}): pass "
            "normalized_shape=input.shape[-1:]."
        )
    for name, value in parameters.items():
        if value is None:
            continue
        if not isinstance(value, torch.Tensor):
            raise TypeError(
                f"{function}: {name} is {type(value).__name__}; wanted a torch tensor "
                "or None."
            )
        for what, got, wanted in (
            ("shape", tuple(value.shape), row),
            ("dtype", value.dtype, x.dtype),
            ("device", value.device, x.device),
        ):
            if got != wanted:
                mend = (
                    f"{name}.reshape({row})" if what == "shape" else f"{name}.to(input)"
                )
                raise ValueError(
                    f"{function}: {name} has {what} {got}; wanted {wanted}: {mend}."
                )
