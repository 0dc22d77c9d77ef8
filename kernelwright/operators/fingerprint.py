"""What two calls have in common that may share one recording."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import torch
from torch.autograd import forward_ad

# Exactly these: a subclass may have an answer of its own to every question.
PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
# 16 bytes: what the widest load takes, and what Triton and TMA ask of an address.
_ALIGNMENT = 15

everywhere = False
"""Whether calls are recorded on the CPU too, where the emulator's work dwarfs what a
call decides: for tests, as a recording's every step but the driver's runs there."""

_grad_enabled = torch.is_grad_enabled
_autocast = torch._C._is_any_autocast_enabled
_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._functorch.peek_interpreter_stack


class _Place:
    """Stands for a number that differs from call to call."""


class _WholePlace:
    """Stands for an integer that does."""


_PLACES: dict[type, type] = {float: _Place, int: _WholePlace}
# What is equal if it compares equal, and keeps nothing alive.
_VALUES = frozenset(
    (type(None), bool, int, str, type, torch.dtype, torch.device, torch.Size)
)


def may_vary(value: object) -> bool:
    """Say whether a number is one that a kernel takes as it is, in 4 bytes."""
    return type(value) is float or (type(value) is int and 0 <= value < 2**31)


def fingerprint(
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    varying: frozenset[int | str] = frozenset(),
) -> tuple[Hashable, ...] | None:
    """Return all that a launch may be decided by; ``None`` where torch must be asked.

    Args:
        arguments: of a call, by position.
        named: by name.
        varying: those whose value decides nothing: numbers that kernels are given.

    Returns:
        Of tensors their shapes, strides, dtypes, devices, alignment and whether a
        gradient is wanted, of all else the value, and the modes that torch is in. Two
        calls with equal fingerprints allocate and launch alike.
        ``None``: a mode or a transform of torch's (fake tensors, ``torch.func``), a
        tensor of a class of its own, or one that is not on a GPU.
    """
    if _modes() or _transforms() is not None or forward_ad._current_level >= 0:
        return None
    parts: list[Any] = [_grad_enabled()]
    if _autocast():
        parts += (
            torch.is_autocast_enabled("cuda"),
            torch.get_autocast_dtype("cuda"),
        )
    values: Any = arguments
    if named or varying:
        parts += named
        values = [
            _PLACES[type(value)] if place in varying and may_vary(value) else value
            for place, value in (*enumerate(arguments), *named.items())
        ]
    for value in values:
        kind = value.__class__
        if kind in PLAIN:
            if value.is_neg() or value.is_conj() or not (value.is_cuda or everywhere):
                return None
            parts += (
                kind,
                value.shape,
                value.stride(),
                value.dtype,
                value.device,
                value.data_ptr() & _ALIGNMENT,
                value.requires_grad,
            )
        elif kind is list or kind is tuple:
            if not all(type(one) in (type(None), bool, int, str) for one in value):
                return None
            parts += (kind, tuple((type(one), one) for one in value))
        elif kind is float:
            if value != value:
                return None
            parts += (kind, value, math.copysign(1.0, value))
        elif kind in _VALUES:
            parts += (kind, value)
        else:
            return None
    return tuple(parts)


def within_mode() -> bool:
    """Say whether one of torch's dispatch modes is at work: fake tensors, say."""
    return _modes() > 0


def within_transform() -> bool:
    """Say whether a transform of ``torch.func`` is at work."""
    return _transforms() is not None


def any_wants_gradient(values: tuple[Any, ...]) -> bool:
    """Say whether torch will ask for a gradient of what is computed of some values."""
    if forward_ad._current_level >= 0:
        return any(
            isinstance(value, torch.Tensor)
            and forward_ad.unpack_dual(value).tangent is not None
            for value in values
        )
    return _grad_enabled() and any(
        isinstance(value, torch.Tensor) and value.requires_grad for value in values
    )
