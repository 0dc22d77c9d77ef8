"""Inputs that no cache has seen: copies of the arguments to rotate through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

CACHES = 4
"""The copies together pass this many last-level caches, so that each call's inputs
have been pushed out by the time their turn comes again."""

MOST_COPIES = 512


@dataclass(frozen=True)
class Rotation:
    """Argument tuples to call with in turn.

    Args:
        turns: the tuples; the first holds the caller's own tensors.
        footprint: bytes of all the distinct tensors in them.
        cold: whether the footprint passes ``CACHES`` caches.
    """

    turns: tuple[tuple[Any, ...], ...]
    footprint: int
    cold: bool


def tensors_in(value: object) -> list[torch.Tensor]:
    """Find the tensors in an argument: in lists, tuples and dictionaries too."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


@dataclass(frozen=True)
class _Extent:
    """The bytes of one storage that the arguments really reach."""

    storage: torch.UntypedStorage
    low: int
    high: int


def _extents(arguments: Sequence[object]) -> dict[int, _Extent]:
    """Find what is reached of each storage: a view of a large one is no large input."""
    found: dict[int, _Extent] = {}
    for argument in arguments:
        for tensor in tensors_in(argument):
            if tensor.numel() == 0:
                continue
            storage = tensor.untyped_storage()
            size = tensor.element_size()
            steps = zip(tensor.shape, tensor.stride(), strict=True)
            span = sum((length - 1) * stride for length, stride in steps)
            low = int(tensor.storage_offset()) * size
            high = low + (span + 1) * size
            # A copy keeps the alignment that vector loads rely on.
            low -= low % 256
            key = storage.data_ptr()
            if key in found:
                low, high = min(low, found[key].low), max(high, found[key].high)
            found[key] = _Extent(storage, low, high)
    return found


def footprint_of(arguments: Sequence[object]) -> int:
    """Count the bytes that the arguments' tensors span, shared ones once."""
    return sum(extent.high - extent.low for extent in _extents(arguments).values())


def copies_needed(footprint: int, cache_bytes: int, room: int) -> int:
    """Say how many copies push each other out of the cache and fit in memory.

    Args:
        footprint: bytes of one set of inputs.
        cache_bytes: size of the last-level cache.
        room: bytes that the copies may take beyond the first set.
    """
    if footprint == 0:
        return 1
    # Strictly more than four caches, and never one set alone: a call that finds
    # what it has itself just written would be flattered.
    wanted = max(2, CACHES * cache_bytes // footprint + 1)
    return max(1, min(wanted, MOST_COPIES, 1 + room // footprint))


def rotate(arguments: tuple[Any, ...], *, cache_bytes: int, room: int) -> Rotation:
    """Copy the tensors among the arguments until they overflow the caches.

    Strides, dtype, device and ``requires_grad`` are kept, and two arguments that
    share memory still share it in every copy.
    """
    extents = _extents(arguments)
    footprint = sum(extent.high - extent.low for extent in extents.values())
    copies = copies_needed(footprint, cache_bytes, room)
    turns = [arguments]
    for _ in range(copies - 1):
        fresh = {key: _duplicate(extent) for key, extent in extents.items()}
        turns.append(
            tuple(_replace(argument, extents, fresh) for argument in arguments)
        )
    total = footprint * copies
    return Rotation(tuple(turns), total, total > CACHES * cache_bytes)


def _duplicate(extent: _Extent) -> torch.UntypedStorage:
    """Copy the bytes that are reached, and no others."""
    window = torch.empty(0, dtype=torch.uint8, device=extent.storage.device)
    window.set_(extent.storage, extent.low, (extent.high - extent.low,), (1,))
    return window.clone().untyped_storage()


def _replace(
    value: Any,
    extents: dict[int, _Extent],
    fresh: dict[int, torch.UntypedStorage],
) -> Any:
    """Put copies in the place of tensors, all the way down."""
    if isinstance(value, torch.Tensor):
        if value.numel() == 0:
            return value
        return _view(value, extents, fresh)
    if isinstance(value, dict):
        return {key: _replace(item, extents, fresh) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_replace(item, extents, fresh) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_replace(item, extents, fresh) for item in value)
    return value


def _view(
    tensor: torch.Tensor,
    extents: dict[int, _Extent],
    fresh: dict[int, torch.UntypedStorage],
) -> torch.Tensor:
    """View a storage's copy as this tensor views the storage."""
    key = tensor.untyped_storage().data_ptr()
    offset = tensor.storage_offset() - extents[key].low // tensor.element_size()
    copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    with torch.no_grad():
        copy.set_(fresh[key], offset, tensor.shape, tensor.stride())
    return copy.requires_grad_(tensor.requires_grad)
