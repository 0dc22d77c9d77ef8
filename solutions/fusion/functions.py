"""The functions: what they take is checked, and their chain is traced once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Literal, get_args

import torch

from kernelwright.operators import recorded
from solutions.fusion import expression
from solutions.fusion.expression import Node, traced
from solutions.fusion.launch import MOST_INPUTS, launched
from solutions.fusion.source import C_TYPES

Approximate = Literal["none", "tanh"]


def gelu(x: torch.Tensor, approximate: Approximate = "none") -> torch.Tensor:
    """Weigh each number by the normal distribution below it: ``x * Phi(x)``.

    Args:
        x: any shape; fp16, bf16, fp32 or fp64. A non-contiguous tensor is copied
            first, which costs one more pass over memory.
        approximate: ``none``, or ``tanh`` for tanh's stand-in for Phi.

    Returns:
        A contiguous tensor of x's shape, dtype and device.

    Raises:
        TypeError: not a tensor, or of another dtype.
        ValueError: another approximation; neither on a CPU nor on an NVIDIA GPU.

    Cost: 2 * n * itemsize bytes, about 30 * n FLOPs; backward 3 * n * itemsize.

    Source: Hendrycks and Gimpel, Gaussian Error Linear Units (2016), section 2.
    """
    return _run("gelu", _text("gelu", _GELU, approximate), x)


def add_relu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Add, and cut off below zero: ``max(0, x + y)``.

    Args:
        x: any shape; fp16, bf16, fp32 or fp64.
        y: of x's dtype and device; shapes broadcast.

    Returns:
        A contiguous tensor; a NaN stays one.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: 3 * n * itemsize bytes, 2 * n FLOPs; backward 4 * n * itemsize.
    """
    return _run("add_relu", _ADD_RELU, x, y)


def mul_tanh(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Take the hyperbolic tangent of a product: ``tanh(x * y)``.

    Args:
        x: any shape; fp16, bf16, fp32 or fp64.
        y: of x's dtype and device; shapes broadcast.

    Returns:
        A contiguous tensor.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: 3 * n * itemsize bytes, about 20 * n FLOPs; backward 5 * n * itemsize.
    """
    return _run("mul_tanh", _MUL_TANH, x, y)


def bias_gelu(
    x: torch.Tensor, bias: torch.Tensor, approximate: Approximate = "none"
) -> torch.Tensor:
    """Add a bias to each row, and take GELU: ``gelu(x + bias)``.

    Args:
        x: (..., columns); fp16, bf16, fp32 or fp64.
        bias: (columns), of x's dtype and device.
        approximate: as for ``gelu``.

    Returns:
        A contiguous tensor of x's shape.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: 2 * n * itemsize bytes, about 30 * n FLOPs; backward 3 * n * itemsize, and
    the bias's gradient is summed in another pass.
    """
    if isinstance(bias, torch.Tensor) and isinstance(x, torch.Tensor):
        columns = tuple(x.shape[-1:])
        if tuple(bias.shape) != columns:
            raise ValueError(
                f"bias_gelu: bias has shape {tuple(bias.shape)} and x "
                f"{tuple(x.shape)}; wanted {columns}, a number a column."
            )
    return _run("bias_gelu", _text("bias_gelu", _BIAS_GELU, approximate), x, bias)


def gelu_dropout(
    x: torch.Tensor,
    p: float = 0.5,
    training: bool = True,
    seed: int | None = None,
    approximate: Approximate = "none",
) -> torch.Tensor:
    """Take GELU, then drop a share of the numbers at random and scale up the others.

        out[i] = gelu(x[i]) / (1 - p) where kept, else 0

    What is kept is a function of the seed and of i: the backward pass draws it again,
    and no mask is stored.

    Args:
        x: any shape; fp16, bf16, fp32 or fp64.
        p: the share that is dropped, 0 to 1: the nearest multiple of 2^-16 for 16-bit
            numbers, of 2^-32 for others.
        training: false computes GELU alone.
        seed: what is kept is drawn from it; drawn from torch's generator when absent.
        approximate: as for ``gelu``.

    Returns:
        A contiguous tensor of x's shape.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: as ``gelu``, and about 8 integer operations an element.

    Source: Srivastava et al., Dropout (2014); Salmon et al., Parallel Random Numbers:
    As Easy as 1, 2, 3 (2011), section 3.
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"gelu_dropout: p is {p}; wanted a share from 0 to 1.")
    if not training or p == 0.0:
        return _run("gelu_dropout", _text("gelu_dropout", _GELU, approximate), x)
    text = f"mul({_text('gelu_dropout', _GELU, approximate)}, kept({float(p)!r}))"
    drawn = None
    if seed is None:
        drawn = torch.randint(2**31, ())
        if not torch.compiler.is_compiling():
            # Read here; a compiled program hands it over as it is.
            seed, drawn = int(drawn), None
    return _run_random("gelu_dropout", text, x, (seed or 0) % 2**63, drawn)


def fuse(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Make one kernel of a chain of element-wise operations, and one of its gradient.

    ``fuse(lambda x, y: torch.relu(x + y) * 2)(a, b)`` is what the function is of a
    and b, rounded once. The function is called once, with placeholders: what it
    decides in Python is decided then.

    Args:
        function: of one to eight tensors, by position; made of torch's operations on
            each element, Python's arithmetic and numbers.

    Returns:
        The fused function. Its tensors have one dtype (fp16, bf16, fp32 or fp64) and
        one device; their shapes broadcast.

    Raises:
        TypeError: an operation that is not fused, named, when it is traced: at once.

    Cost: each tensor read once, the result written once; backward the tensors and
    the result's gradient read once, and each gradient written once.
    """
    count = len(inspect.signature(function).parameters)
    name = getattr(function, "__name__", "fuse")
    if not 1 <= count <= MOST_INPUTS:
        raise TypeError(
            f"fuse: {name} takes {count} arguments; wanted 1 to {MOST_INPUTS} tensors."
        )
    text = str(traced(function, count))

    @wraps(function)
    def run(*inputs: torch.Tensor) -> torch.Tensor:
        if len(inputs) != count:
            raise TypeError(
                f"{name}: got {len(inputs)} tensors; wanted {count}, by position."
            )
        return _run(name, text, *inputs)

    return run


@recorded
def _run(name: str, text: str, *inputs: torch.Tensor) -> torch.Tensor:
    _check(name, inputs)
    return launched(text, inputs)


@recorded(varying=("seed",))
def _run_random(
    name: str, text: str, x: torch.Tensor, seed: int, drawn: torch.Tensor | None
) -> torch.Tensor:
    _check(name, (x,))
    return launched(text, (x,), seed, drawn)


def _text(function: str, texts: dict[str, str], approximate: str) -> str:
    if approximate not in texts:
        raise ValueError(
            f"{function}: approximate is {approximate!r}; wanted "
            f"{' or '.join(map(repr, texts))}."
        )
    return texts[approximate]


_APPROXIMATE = get_args(Approximate)
_GELU = {a: str(expression.gelu(Node("x0"), approximate=a)) for a in _APPROXIMATE}
_BIAS_GELU = {
    a: str(expression.gelu(expression.add(Node("x0"), Node("x1")), approximate=a))
    for a in _APPROXIMATE
}
_ADD_RELU = "relu(add(x0, x1))"
_MUL_TANH = "tanh(mul(x0, x1))"


def _check(function: str, inputs: tuple[torch.Tensor, ...]) -> None:
    """Validate once, at the boundary: kernels do not."""
    for place, x in enumerate(inputs):
        if not isinstance(x, torch.Tensor):
            raise TypeError(
                f"{function}: argument {place + 1} is {type(x).__name__}; wanted a "
                "torch tensor: torch.as_tensor(value)."
            )
        if x.dtype not in C_TYPES:
            raise TypeError(
                f"{function}: argument {place + 1} is {x.dtype}; wanted float16, "
                "bfloat16, float32 or float64: x.float()."
            )
        if x.device.type not in ("cpu", "cuda"):
            raise ValueError(
                f"{function}: argument {place + 1} is on {x.device}; move it with "
                ".cpu()."
            )
        if x.dtype != inputs[0].dtype or x.device != inputs[0].device:
            raise ValueError(
                f"{function}: argument {place + 1} is {x.dtype} on {x.device}, the "
                f"first {inputs[0].dtype} on {inputs[0].device}; wanted the same: "
                "y.to(x)."
            )
    try:
        torch.broadcast_shapes(*(x.shape for x in inputs))
    except RuntimeError:
        shapes = ", ".join(str(tuple(x.shape)) for x in inputs)
        raise ValueError(
            f"{function}: shapes {shapes} do not broadcast: each pair of sizes must be "
            "equal, or one of them 1."
        ) from None
