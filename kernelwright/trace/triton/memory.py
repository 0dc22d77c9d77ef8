"""A Triton launch's arguments, with their tensors moved between guards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelwright.trace.memory import GuardedMemory
from kernelwright.trace.unwritten import flat, is_unwritten, poison


class GuardedArguments:
    """Copies of a launch's tensors; those that overlap share one.

    Args:
        names: of the parameters.
        given, given_named: what the caller passed.
        hosted, hosted_named: the same on the CPU.
        unwritten: parameters, by name or position from 0, whose memory counts as
            never written, beside those that are marked so.
    """

    def __init__(
        self,
        names: Sequence[str],
        given: Sequence[Any],
        given_named: Mapping[str, Any],
        hosted: Sequence[Any],
        hosted_named: Mapping[str, Any],
        unwritten: Sequence[str | int],
    ) -> None:
        before = [*zip(names, given, strict=False), *given_named.items()]
        after = [*hosted, *hosted_named.values()]
        listed = []
        for (name, original), value in zip(before, after, strict=False):
            position = names.index(name)
            for own, tensor in zip(_tensors(original), _tensors(value), strict=True):
                fresh = name in unwritten or position in unwritten or is_unwritten(own)
                size = tensor.element_size()
                listed.append((position, name, size, fresh, flat(tensor)))
        self._memory = GuardedMemory(listed)
        self.buffers = [b for b in self._memory.buffers if b.high > b.low]
        for *_, fresh, tensor in listed:
            if fresh and tensor.numel():
                poison(self._memory.copy_of(tensor))
        self.arguments = [_changed(value, self._moved) for value in hosted]
        self.named = {k: _changed(v, self._moved) for k, v in hosted_named.items()}

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.numel():
            return tensor
        return self._memory.copy_of(tensor)

    def copy_back(self) -> None:
        """Give the tensors what the kernel wrote."""
        self._memory.copy_back()


def _tensors(value: Any) -> list[torch.Tensor]:
    """List the tensors of an argument: its own, or those that it is made of."""
    found: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    _changed(value, note)
    return found


def _changed(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return an argument with its tensors changed, by Triton's rules what has some."""
    from triton.runtime.jit import TensorWrapper

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, TensorWrapper):
        return TensorWrapper(change(value.base), value.dtype)
    # Older Tritons have no such module; whoever holds a descriptor has loaded it.
    module = sys.modules.get("triton.tools.tensor_descriptor")
    if module and isinstance(value, module.TensorDescriptor):
        return replace(value, base=change(value.base))
    if isinstance(value, tuple):
        parts = [_changed(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
