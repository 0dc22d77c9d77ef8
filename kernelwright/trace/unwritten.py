"""Tensors whose memory counts as never written, until something writes to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kernelwright.torch_mode import QuickMode

# NaN in every floating-point type; in whole numbers something that nobody writes.
_NAN, _GARBAGE = 0xFF, 0xA7

_MARK = "_kernelwright_unwritten"
_EMPTY = (
    *("empty", "empty_like", "empty_strided", "empty_permuted"),
    *("new_empty", "new_empty_strided"),
)


def unwritten_like(tensor: torch.Tensor) -> torch.Tensor:
    """Make an output: like ``torch.empty_like``, and a trace knows that it is empty.

    Reading an element of it before the kernel has written that element is a problem in
    the report of ``kernel.trace`` and ``kw.trace_triton``. It holds NaN, or garbage in
    whole numbers, and counts as written as soon as any of it holds something else. The
    mark is this tensor's own; a view of it has none.

    Args:
        tensor: whose shape, strides, dtype and device the new one takes.

    Returns:
        A tensor with nothing in it yet.

    Cost: an allocation, and one write of each byte.
    """
    return mark_unwritten(torch.empty_like(tensor))


def mark_unwritten(tensor: torch.Tensor) -> torch.Tensor:
    """Poison a tensor, and let it count as never written while all of that is there."""
    if not tensor.is_meta:
        poison(tensor)
        # torch counts what its own operations write, whatever they write.
        setattr(tensor, _MARK, tensor._version)
    return tensor


def poison(tensor: torch.Tensor) -> None:
    """Fill a tensor with what nobody takes for a result."""
    _bytes(tensor).fill_(_poison_of(tensor))


def is_unwritten(tensor: Any) -> bool:
    """Say whether a tensor is marked and nothing has been written to it since."""
    marked = getattr(tensor, _MARK, None)
    if marked is None or marked != tensor._version:
        return False
    return bool((_bytes(tensor) == _poison_of(tensor)).all())


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return the stretch of memory that a strided tensor covers, in one dimension."""
    if not tensor.numel():
        return tensor.reshape(-1)
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.as_strided((1 + sum((n - 1) * step for n, step in steps),), (1,))


def _poison_of(tensor: torch.Tensor) -> int:
    real = tensor.is_floating_point() or tensor.is_complex()
    return _NAN if real else _GARBAGE


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return flat(tensor.detach()).view(torch.uint8)


def marking_empty_tensors() -> QuickMode:
    """Return a context in which ``torch.empty`` and its kin make marked tensors."""
    return _Marking()  # type: ignore[no-untyped-call]


class _Marking(QuickMode):
    """Looks at every operation of torch's, and marks what it leaves empty."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in _EMPTY:
            mark_unwritten(made)
        return made
