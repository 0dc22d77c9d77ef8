"""A fused expression as an operator of torch's: shapes, launches, the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

import kernelwright as kw
from kernelwright.operators import operator
from solutions.fusion.derivative import gradients
from solutions.fusion.expression import Node, parsed
from solutions.fusion.source import (
    PACK_BYTES,
    THREADS,
    Division,
    Places,
    source,
)

MOST_INPUTS = 8
_Input = torch.Tensor | None


def computed(
    texts: str, inputs: Sequence[torch.Tensor], seed: int
) -> list[torch.Tensor]:
    """Compute some expressions of the same inputs, in one kernel.

    Args:
        texts: the expressions, as ``str`` writes them, one a line.
        inputs: of one dtype and device; their shapes broadcast.
        seed: what random numbers are drawn from.

    Returns:
        A contiguous tensor for each expression, of the shape that the inputs have
        together.

    Cost: each input read once, each result written once.
    """
    results = _room(texts, inputs)
    shape, n, x = results[0].shape, results[0].numel(), inputs[0]
    if n:
        ready, places = zip(*(_ready(x, shape) for x in inputs), strict=True)
        width = PACK_BYTES // x.element_size()
        packs = kw.cdiv(n, width)
        kernel = _kernel(
            texts, x.dtype, places, x.device.type, n % width == 0, packs >= 2**31
        )
        blocks = kw.cdiv(packs, THREADS)
        columns = shape[-1] if shape else 1
        division = Division.by(max(1, columns // width))
        kernel[blocks, THREADS](*ready, *results, n, columns, *division, seed)
    return results


def _room(texts: str, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    shape = torch.broadcast_shapes(*(x.shape for x in inputs))
    return [inputs[0].new_empty(shape) for _ in texts.split("\n")]


def _given(inputs: tuple[_Input, ...]) -> list[torch.Tensor]:
    return [x for x in inputs if x is not None]


@operator("fused", varying=("seed",))
def _fused(
    text: str,
    x0: torch.Tensor,
    x1: torch.Tensor | None,
    x2: torch.Tensor | None,
    x3: torch.Tensor | None,
    x4: torch.Tensor | None,
    x5: torch.Tensor | None,
    x6: torch.Tensor | None,
    x7: torch.Tensor | None,
    seed: int,
    drawn: torch.Tensor | None,
) -> torch.Tensor:
    """Compute one expression; ``drawn``: the seed, if a compiled program draws it."""
    inputs = _given((x0, x1, x2, x3, x4, x5, x6, x7))
    return computed(text, inputs, seed if drawn is None else int(drawn))[0]


@operator("fused_backward", varying=("seed",))
def _fused_backward(
    texts: str,
    slope: torch.Tensor,
    x0: torch.Tensor,
    x1: torch.Tensor | None,
    x2: torch.Tensor | None,
    x3: torch.Tensor | None,
    x4: torch.Tensor | None,
    x5: torch.Tensor | None,
    x6: torch.Tensor | None,
    x7: torch.Tensor | None,
    seed: int,
    drawn: torch.Tensor | None,
) -> list[torch.Tensor]:
    """Compute the gradients of some inputs; the same random numbers are drawn again."""
    inputs = _given((x0, x1, x2, x3, x4, x5, x6, x7))
    return computed(texts, [*inputs, slope], seed if drawn is None else int(drawn))


_fused.register_fake(lambda text, *given: _room(text, _given(given[:-2]))[0])
_fused_backward.register_fake(lambda texts, *given: _room(texts, _given(given[:-2])))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.text, *given, ctx.seed, drawn = inputs
    ctx.save_for_backward(*_given(tuple(given)), drawn)


def _gradient(ctx: Any, slope: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    *inputs, drawn = ctx.saved_tensors
    wanted = [i for i in range(len(inputs)) if ctx.needs_input_grad[1 + i]]
    texts = backward_texts(ctx.text, len(inputs), tuple(wanted))
    found = _fused_backward(texts, slope, *_padded(inputs), ctx.seed, drawn)
    gradients = dict(zip(wanted, found, strict=True))
    summed = (
        gradients[i].sum_to_size(inputs[i].shape) if i in gradients else None
        for i in range(MOST_INPUTS)
    )
    return (None, *summed, None, None)


_fused.register_autograd(_gradient, setup_context=_keep)


def _padded(inputs: Sequence[torch.Tensor]) -> list[_Input]:
    return [*inputs, *[None] * (MOST_INPUTS - len(inputs))]


def launched(
    text: str,
    inputs: Sequence[torch.Tensor],
    seed: int = 0,
    drawn: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute an expression of inputs that were checked; gradients flow."""
    result: torch.Tensor = _fused(text, *_padded(inputs), seed, drawn)
    return result


def _ready(x: torch.Tensor, shape: torch.Size) -> tuple[torch.Tensor, str]:
    """Return memory that the kernel can read, and how it is read."""
    if x.numel() == 1:
        return x.contiguous(), "one"
    row = x.dim() > 0 and x.numel() == x.shape[-1] == shape[-1]
    if x.shape == shape or not row:
        x, place = x.expand(shape).contiguous(), "flat"
    else:
        width = PACK_BYTES // x.element_size()
        # Packs are numbered in 31 bits where they are divided.
        whole = x.numel() % width == 0 and shape.numel() < width * 2**31
        x, place = x.reshape(-1).contiguous(), "row" if whole else "ragged"
    # A pack is read at once: what does not begin at one is copied.
    return (x if x.data_ptr() % PACK_BYTES == 0 else x.clone()), place


@cache
def _kernel(
    texts: str,
    dtype: torch.dtype,
    places: Places,
    device_type: str,
    whole: bool,
    huge: bool,
) -> kw.cuda.Kernel:
    backend: kw.cuda.Backend = "gpu" if device_type == "cuda" else "emulator"
    roots = [parsed(line) for line in texts.split("\n")]
    text = source(roots, dtype, places, whole, huge)
    return kw.cuda.compile(text, name="fused.cu", backend=backend)["fused"]


@cache
def backward_texts(text: str, inputs: int, wanted: tuple[int, ...]) -> str:
    """Return some gradients' expressions; the result's gradient is the last input."""
    found = gradients(parsed(text), Node(f"x{inputs}"), inputs)
    return "\n".join(str(found[place]) for place in wanted)
