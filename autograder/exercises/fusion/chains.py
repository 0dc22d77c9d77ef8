"""Chains that a fuser is tried on: how they are drawn, what is right, and how nearly.

**Tolerance.** Every operation's result is rounded, and every constant: by eps/2 of
itself where it is one of arithmetic, by up to 2 eps where it is a function of CUDA's
library, and a sigmoid of three by up to 3. What a rounding does to an output is the
output's derivative by it: ``Shaken`` multiplies every result by 1 + a number of its
own, 0, which autograd differentiates by. Their magnitudes added up bound the error to
first order. A gradient is rounded on its own way as well, some three times at each
operation that it passes, each time relative to what passes there: so it has a number
to be off by for each way into an operation; and where the slope is a difference, as
1 - tanh^2 is, one more, for that is off by eps of 1, however small it is. 4 * eps of
the sum, and of the output itself, holds all of these.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, Case, Output, Outputs, Problem
from autograder.worker.adapters.fusing import chain_of, packed
from kernelwright.expression import FUNCTIONS

FACTOR = 4.0


class Shaken:
    """A tensor in float64, made by operations that are each a little off.

    Args:
        value: the numbers.
        shakes: by how much of itself each operation's result is off; all are 0.
    """

    def __init__(self, value: Any, shakes: list[torch.Tensor]) -> None:
        self.value, self.shakes = value, shakes

    def made(self, function: Callable[..., Any], *given: Any) -> Shaken:
        """Return an operation's result, off by a number of its own."""
        value = function(*map(self._passed, given))
        if value.dtype is torch.bool:
            return Shaken(value.double(), self.shakes)
        if function in _DIFFERENCES:
            # Adds nothing, but to the slope.
            x = given[0].value
            value = value + (x - x.detach()) * self._off(x)
        return Shaken(value * (1.0 + self._off(value)), self.shakes)

    def _passed(self, given: Any) -> torch.Tensor:
        """Return the same numbers, whose gradient on this way is off."""
        if not isinstance(given, Shaken):  # a constant, which is rounded to a float
            rounded: torch.Tensor = given * (1.0 + self._off(self.value))
            return rounded
        x: torch.Tensor = given.value
        return x + (x - x.detach()) * self._off(x)

    def _off(self, like: torch.Tensor) -> torch.Tensor:
        self.shakes.append(torch.zeros_like(like, requires_grad=True))
        return self.shakes[-1]

    def __getattr__(self, name: str) -> Callable[[], Shaken]:
        assert name in FUNCTIONS, name
        return lambda: self.made(getattr(torch, name), self)


# Their slopes are differences, such as 1 - y * y: off by eps of 1, however small.
_DIFFERENCES = (torch.tanh, torch.sigmoid, torch.erf)


def _operators() -> None:
    for name in ("add", "sub", "mul", "truediv"):
        function = getattr(operator, name)

        def plain(a: Shaken, b: Any, f: Any = function) -> Shaken:
            return a.made(f, a, b)

        def turned(a: Shaken, b: Any, f: Any = function) -> Shaken:
            return a.made(f, b, a)

        setattr(Shaken, f"__{name}__", plain)
        setattr(Shaken, f"__r{name}__", turned)
    setattr(Shaken, "__neg__", lambda a: a.made(operator.neg, a))  # noqa: B010
    setattr(Shaken, "__gt__", lambda a, b: a.made(operator.gt, a, b))  # noqa: B010


_operators()


def chain_case(n: int, chain: str) -> Case:
    """Return a case of a chain, the text of a function, which is its name as well."""
    return Case(f"n = {n:,}, {chain}", {"n": n}, chain)


def chain_problem(case: Case, generator: torch.Generator) -> Problem:
    """Draw a chain's inputs, and the gradient of its result."""
    names = list(inspect.signature(chain_of(packed(case.regime))).parameters)
    n = case.sizes["n"]
    draws = [torch.randn(n, generator=generator) for _ in (*names, "grad")]
    like = Output((n,), torch.float32)
    return Problem(
        {
            "chain": packed(case.regime),
            **dict(zip([*names, "grad"], draws, strict=True)),
        },
        {"out": like, **{f"d{name}": like for name in names}},
    )


def _parts(
    arguments: Arguments, shakes: list[torch.Tensor]
) -> tuple[list[str], Sequence[torch.Tensor]]:
    """Return the names of a chain's outputs, and the outputs in float64."""
    names = [name for name in arguments if name not in ("chain", "grad")]
    leaves = [tensor(arguments, name).double().requires_grad_() for name in names]
    out = chain_of(int(arguments["chain"]))(*(Shaken(x, shakes) for x in leaves)).value
    grad = tensor(arguments, "grad").double()
    slopes = torch.autograd.grad(
        out, leaves, grad, create_graph=True, materialize_grads=True
    )
    return ["out", *(f"d{name}" for name in names)], (out, *slopes)


def chain_reference(arguments: Arguments) -> Outputs:
    """Return a chain's result and its inputs' gradients."""
    names, parts = _parts(arguments, [])
    return {name: p.detach() for name, p in zip(names, parts, strict=True)}


def chain_scale(arguments: Arguments) -> Outputs:
    """Return how far the roundings of all operations may move each output."""
    shakes: list[torch.Tensor] = []
    names, parts = _parts(arguments, shakes)
    found = {}
    for name, part in zip(names, parts, strict=True):
        found[name] = part.detach().abs()
        if shakes and part.requires_grad:
            moved = torch.autograd.grad(
                part.sum(), shakes, retain_graph=True, materialize_grads=True
            )
            found[name] = found[name] + sum(m.abs() for m in moved)
    return found
