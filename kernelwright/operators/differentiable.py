"""Calls that want a gradient: one of torch's autograd functions around a recording."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kernelwright.cuda.watch import Varying, unwrapped
from kernelwright.operators.onlooker import ASKED, Onlooker
from kernelwright.operators.program import Replay, compiled


class Differentiable(Protocol):
    """An operator with a gradient."""

    forward: Callable[..., Any]
    backward: Callable[..., Any]

    def redispatch(self, keys: Any, arguments: tuple[Any, ...]) -> Any:
        """Let torch go on below autograd."""

    def recording_of(self, arguments: tuple[Any, ...]) -> Replay | None:
        """Return how the forward pass of a call that was made is repeated."""

    def setup_context(self, *, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what the backward pass wants."""


class _Recorded(torch.autograd.Function):
    """Arguments of the operator, the operator, and how its forward pass is run."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Any:
        *rest, operator, run = given
        inputs = tuple(rest)
        output = run(inputs, {})
        operator.setup_context(
            ctx=ctx, inputs=tuple(map(unwrapped, inputs)), output=output
        )
        ctx.operator = operator
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (*_backward(ctx, gradients, 2), None, None)


def _backward(ctx: Any, gradients: tuple[Any, ...], ours: int) -> tuple[Any, ...]:
    """Ask the operator; the last of the arguments are ours, none of the operator's."""
    whole = ctx.needs_input_grad
    ctx.needs_input_grad = whole[:-ours]
    try:
        found = ctx.operator.backward(ctx, *gradients)
    finally:
        ctx.needs_input_grad = whole
    return found if isinstance(found, tuple) else (found,)


class _Transformed(torch.autograd.Function):
    """The form that ``torch.func`` wants, which takes 10 us longer to call."""

    @staticmethod
    def forward(*given: Any) -> Any:
        *inputs, operator = given
        return operator(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *rest, operator = inputs
        operator.setup_context(ctx=ctx, inputs=tuple(rest), output=output)
        ctx.operator = operator

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (*_backward(ctx, gradients, 1), None)


def refused_later(found: Any, name: str) -> Any:
    """Return results of an operator without a gradient, which say so when asked."""
    several = isinstance(found, (tuple, list))
    tensors = [t.detach().requires_grad_() for t in (found if several else [found])]
    message = f"{name} has no gradient: detach what it is given"
    trap = torch._C._functions.DelayedError(message.encode(), len(tensors))
    trapped = trap(*tensors)
    if not several:
        return trapped
    return type(found)(trapped if isinstance(trapped, tuple) else (trapped,))


def transformed(operator: Differentiable, arguments: tuple[Any, ...]) -> Any:
    """Call an operator within a transform of ``torch.func``."""
    return _Transformed.apply(*arguments, operator)  # type: ignore[no-untyped-call]


@dataclass
class _Made:
    """A differentiable call of an operator, and what it gave."""

    operator: Differentiable
    arguments: tuple[Any, ...]
    output: Any


class _Notes(threading.local):
    made: list[_Made] | None = None


_notes = _Notes()


def differentiate(
    operator: Differentiable, arguments: tuple[Any, ...], keys: Any = None
) -> Any:
    """Call an operator so that torch can find its gradient.

    Args:
        operator: what is called.
        arguments: its own.
        keys: where torch traces, the dispatch keys of the call.
    """

    def run(inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if keys is not None:
            return operator.redispatch(keys, inputs)
        return operator.forward(*map(unwrapped, inputs), **named)

    with torch._C.DisableTorchFunction():  # whoever looks on has seen it
        output = _Recorded.apply(*arguments, operator, run)  # type: ignore[no-untyped-call]
    if _notes.made is not None:
        _notes.made.append(_Made(operator, arguments, output))
    return output


def record_differentiable(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, Replay | None]:
    """Call a function, and say how to repeat it if it only calls one operator.

    Where it computes with the operator's arguments or its result, torch must be there
    to write down what for: then it is called in full every time.
    """
    before, _notes.made = _notes.made, []
    onlooker = Onlooker(ASKED)
    try:
        with onlooker:
            found = function(*arguments, **named)
        made = _notes.made
    finally:
        _notes.made = before
    hooked = isinstance(found, torch.Tensor) and (
        found._backward_hooks or found.retains_grad
    )
    if len(made) != 1 or onlooker.seen or hooked:
        return found, None
    return found, _direct(made[0], arguments, named, found)


def _direct(
    made: _Made, arguments: tuple[Any, ...], named: dict[str, Any], found: Any
) -> Replay | None:
    """Write the operator's call down, with the function's own arguments."""
    whole = made.output
    if found is whole:
        pick = ""
    elif isinstance(whole, tuple) and any(found is one for one in whole):
        pick = f"[{[found is one for one in whole].index(True)}]"
    else:
        return None
    sources = [(value, f"a[{at}]") for at, value in enumerate(arguments)]
    sources += [(value, f"n[{key!r}]") for key, value in named.items()]
    plain = tuple(map(unwrapped, made.arguments))
    run = made.operator.recording_of(plain)
    if run is None:
        return None
    space: dict[str, Any] = {"operator": made.operator, "run": run}
    space["apply"] = _Recorded.apply
    spelled = []
    for at, value in enumerate(made.arguments):
        source = next((text for other, text in sources if other is value), None)
        if isinstance(value, (torch.Tensor, Varying)) and source is None:
            return None
        if not isinstance(value, (torch.Tensor, Varying)):
            source = f"k{at}"
            space[source] = value
        spelled.append(source)
    inside = ", ".join([*map(str, spelled), "operator", "run"])
    text = f"def replay(a, n): return apply({inside}){pick}"
    exec(compiled(text), space)
    replay: Replay = space["replay"]
    replay.text = text  # type: ignore[attr-defined]
    return replay
