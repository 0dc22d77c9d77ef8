"""Chains of operations around a learner's fuser: what it makes of them, and of grads.

A chain crosses the wire as the text of a function, packed into a whole number: the
supervisor's own words, of which the hidden ones are not known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch

from autograder.worker.entry import WrongReturn
from kernelwright.errors import CompileError


def packed(chain: str) -> int:
    """Return a text as a number."""
    return int.from_bytes(chain.encode(), "big")


def repeat(step: Callable[[Any], Any], times: int, x: Any) -> Any:
    """Apply a step to what it made, so often."""
    return reduce(lambda made, _: step(made), range(times), x)


def chain_of(number: int) -> Callable[..., Any]:
    """Return the function whose text a number holds."""
    text = number.to_bytes((number.bit_length() + 7) // 8, "big").decode()
    function: Callable[..., Any] = eval(text, {"repeat": repeat})
    return function


_FUSED: dict[tuple[int, int], Any] = {}


def _compiled(fuse: Any, chain: Callable[..., Any]) -> Any:
    try:
        return fuse(chain)
    except CompileError as error:
        # Its lines are the printed text's, and no cell's.
        raise WrongReturn(f"what is printed does not compile. {error}") from error


def adapt_fuser(fuse: Any, chain: int, *tensors: torch.Tensor) -> tuple[Any, ...]:
    """Return a chain's result and its inputs' gradients, for the result's, the last."""
    *inputs, grad = tensors
    leaves = [x.detach().requires_grad_() for x in inputs]
    # Compiled once, as its user would: what is timed is what it made.
    known = id(fuse), chain
    if known not in _FUSED:
        _FUSED[known] = _compiled(fuse, chain_of(chain))
    if not callable(_FUSED[known]):
        raise WrongReturn(
            f"fuse returned {type(_FUSED[known]).__name__}; wanted a function of "
            "tensors, as differentiable makes it."
        )
    out = _FUSED[known](*leaves)
    if not isinstance(out, torch.Tensor) or out.grad_fn is None:
        raise WrongReturn(
            f"the fused function returned {type(out).__name__}; wanted a tensor that "
            "autograd knows, as differentiable makes it."
        )
    if out.shape != grad.shape:
        raise WrongReturn(
            f"the fused function returned shape {tuple(out.shape)}; wanted "
            f"{tuple(grad.shape)}, as its inputs have."
        )
    slopes = torch.autograd.grad(out, leaves, grad, materialize_grads=True)
    return out.detach(), *slopes
