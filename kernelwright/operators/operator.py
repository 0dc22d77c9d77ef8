"""A launch as an operator of ``torch.library``: what traces a program sees one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelwright.cuda.watch import watched
from kernelwright.operators.calls import recorded_calls
from kernelwright.operators.differentiable import (
    differentiate,
    refused_later,
    transformed,
)
from kernelwright.operators.fingerprint import (
    PLAIN,
    any_wants_gradient,
    within_mode,
    within_transform,
)
from kernelwright.operators.program import Replay
from kernelwright.operators.recorder import current_recorder

_NAMESPACE = "kernelwright"
_library = torch.library.Library(_NAMESPACE, "FRAGMENT")


class Operator:
    """A function of tensors that launches kernels; ``torch.ops.kernelwright.<name>``.

    Called where torch traces (``torch.compile``, ``torch.export``, fake tensors,
    ``torch.func``) it is torch's operator; elsewhere its recorded self, with no
    dispatcher on the way.

    Args:
        name: in the namespace ``kernelwright``.
        launch: the function, with the type hints that torch wants of an operator.
        varying: as for ``recorded``.
    """

    def __init__(
        self, name: str, launch: Callable[..., Any], varying: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self.launch = launch
        self.forward = recorded_calls(launch, varying)
        self.backward: Callable[..., Any] = self._no_backward
        self._setup: Callable[..., None] | None = None
        # By hand: what ``torch.library.custom_op`` puts around a call takes 6 us.
        schema = torch.library.infer_schema(launch, mutates_args=())
        _library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        for place in ("CPU", "CUDA"):
            _library.impl(name, self.forward, place)
        _library.impl(name, self._above_dispatch, "Autograd", with_keyset=True)
        self.overload = getattr(getattr(torch.ops, _NAMESPACE), name).default
        self._tracing = torch.compiler.is_dynamo_compiling

    def register_fake(self, fake: Callable[..., Any]) -> Callable[..., Any]:
        """Say what comes out, less its values: for tracing. A decorator."""
        torch.library.register_fake(f"{_NAMESPACE}::{self.name}", fake, lib=_library)
        return fake

    def register_autograd(
        self,
        backward: Callable[..., Any],
        *,
        setup_context: Callable[..., None] | None = None,
    ) -> None:
        """Give the gradient, as ``torch.library.register_autograd`` has it.

        Args:
            backward: ``(ctx, *gradients)`` to a gradient for each argument.
            setup_context: ``(ctx, inputs, output)``: keeps what backward wants.
        """
        self.backward, self._setup = backward, setup_context

    @property
    def differentiable(self) -> bool:
        """Whether a gradient was given."""
        return self.backward != self._no_backward

    def setup_context(self, *, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what the backward pass wants."""
        if self._setup is not None:
            self._setup(ctx=ctx, inputs=inputs, output=output)

    def __call__(self, *arguments: Any) -> Any:
        """Launch; arguments by position."""
        if self._tracing():
            return self.overload(*arguments)
        if watched.watcher is not None:
            # Part of a call that is being recorded, without a gradient.
            if any_wants_gradient(arguments):
                recorder = current_recorder()
                assert recorder is not None
                recorder.refuse(f"{self.name} is asked for a gradient within")
                with recorder.paused():
                    return self._with_gradient(arguments, None)
            return self.launch(*arguments)
        if within_transform():
            return transformed(self, arguments)
        if within_mode() or _any_of_its_own(arguments):
            return self.overload(*arguments)
        if any_wants_gradient(arguments):
            return self._with_gradient(arguments, None)
        return self.forward(*arguments)

    def _with_gradient(self, arguments: tuple[Any, ...], keys: Any) -> Any:
        if self.differentiable:
            return differentiate(self, arguments, keys)
        with torch.no_grad():
            found = (
                self.forward(*arguments)
                if keys is None
                else self.redispatch(keys, arguments)
            )
        return refused_later(found, self.name)

    def _above_dispatch(self, keys: Any, *arguments: Any) -> Any:
        """Be torch's operator: where nothing traces, no dispatcher comes after."""
        traced = within_mode() or _any_of_its_own(arguments)
        if any_wants_gradient(arguments):
            return self._with_gradient(arguments, keys if traced else None)
        return self.redispatch(keys, arguments) if traced else self.forward(*arguments)

    def redispatch(self, keys: Any, arguments: tuple[Any, ...]) -> Any:
        """Let torch go on below autograd: to a mode that traces, or to the kernel."""
        with torch._C._AutoDispatchBelowAutograd():
            below = keys & torch._C._after_autograd_keyset
            return self.overload.redispatch(below, *arguments)

    def recording_of(self, arguments: tuple[Any, ...]) -> Replay | None:
        """Return how the forward pass of a call that was made is repeated."""
        with torch.no_grad():
            found: Replay | None = self.forward.recording_of(arguments)  # type: ignore[attr-defined]
        return found

    def _no_backward(self, ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(
            f"{self.name} has no gradient: call it under torch.no_grad(), or detach "
            "what it is given."
        )


def _any_of_its_own(values: tuple[Any, ...]) -> bool:
    """Say whether a tensor is none that a kernel can read: a fake or a lazy one."""
    return any(
        isinstance(v, torch.Tensor)
        and (v.__class__ not in PLAIN or v.is_neg() or v.is_conj())
        for v in values
    )


def traced(*tensors: torch.Tensor) -> bool:
    """Say whether torch traces a function of these tensors: ``out=`` is a copy then."""
    if torch.compiler.is_compiling():
        return True
    if watched.watcher is not None:
        return False
    return within_mode() or within_transform() or _any_of_its_own(tensors)


def operator(
    name: str, *, varying: tuple[str, ...] = ()
) -> Callable[[Callable[..., Any]], Operator]:
    """Make a function an ``Operator``: a decorator."""
    return lambda launch: Operator(name, launch, varying)
