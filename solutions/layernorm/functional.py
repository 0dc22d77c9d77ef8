"""The functions: checks at the boundary, autograd, and launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from solutions.layernorm.launch import CTYPES, flag, forward_into, gradients_into, wide

__all__ = ["layer_norm", "layer_norm_relu", "rms_norm"]

_HALVES = (torch.float16, torch.bfloat16)


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
    return _apply(input, weight, bias, row, eps, _Kind("layer_norm", False, False))


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
    return _apply(input, weight, bias, row, eps, _Kind("layer_norm_relu", False, True))


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
    return _apply(input, weight, None, row, eps, _Kind("rms_norm", True, False))


@dataclass(frozen=True)
class _Kind:
    """Which of the three; the last two are arguments of the templates."""

    name: str
    rms: bool
    relu: bool

    @property
    def arguments(self) -> str:
        return f"{flag(self.rms)}, {flag(self.relu)}"


def _apply(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    row: tuple[int, ...],
    eps: float,
    kind: _Kind,
) -> torch.Tensor:
    columns = 1
    for size in row:
        columns *= size
    flat = (None if t is None else t.reshape(-1) for t in (weight, bias))
    matrix = x.reshape(-1, columns) if x.numel() else x.reshape(0, max(1, columns))
    y: torch.Tensor = _Norm.apply(matrix, *flat, eps, kind)
    return y.reshape(x.shape)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        kind: _Kind,
    ) -> torch.Tensor:
        x, weight, bias = x.contiguous(), _whole(weight), _whole(bias)
        y = torch.empty_like(x)
        stats = None
        if any(ctx.needs_input_grad[:3]):
            stats = x.new_empty((3, x.shape[0]), dtype=wide(x.dtype))
        if x.numel():
            forward_into(x, weight, bias, y, stats, eps, kind.arguments)
        ctx.save_for_backward(x, weight, bias, stats)
        ctx.kind = kind
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, bias, stats = ctx.saved_tensors
        dx = torch.empty_like(x)
        wants = ctx.needs_input_grad
        dweight = torch.empty_like(weight) if weight is not None else None
        dbias = torch.empty_like(bias) if bias is not None else None
        if x.numel():
            sums = bool(wants[1] or wants[2])
            gradients_into(
                x,
                dy.contiguous(),
                weight,
                bias,
                stats,
                dx,
                dweight if sums else None,
                dbias if sums else None,
                ctx.kind.arguments,
            )
        else:
            for gradient in (dweight, dbias):
                if gradient is not None:
                    gradient.zero_()
        return (
            dx if wants[0] else None,
            dweight if wants[1] else None,
            dbias if wants[2] else None,
            None,
            None,
        )


def _whole(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.contiguous()


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
    if not isinstance(x, torch.Tensor):
        raise TypeError(
            f"{function}: input is {type(x).__name__}; wanted a torch tensor: "
            "torch.as_tensor(input)."
        )
    if x.dtype not in CTYPES:
        raise TypeError(
            f"{function}: input is {x.dtype}; wanted float16, bfloat16, float32 or "
            "float64: input.float()."
        )
    if x.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"{function}: input is on {x.device}; move it with input.cpu()."
        )
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
