"""Buckets: gradients side by side in one buffer, so that one message carries many."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from solutions.parallel._collectives import Group, Handle, all_reduce
from solutions.parallel.bucket_gradients import bucket_gradients


@dataclass
class Bucket:
    """Gradients that travel together.

    Args:
        members: the parameters' numbers, in the order in which gradients come.
        buffer: their gradients one behind the other; one number more at its end, in
            the last bucket, counts parameters that were given none.
        views: each member's part of the buffer, in its parameter's shape.
        missing: the members that have no gradient yet in this step.
        handle: of the all-reduce, once it has begun.
        began: when it did, by ``time.perf_counter``.
    """

    members: Sequence[int]
    buffer: torch.Tensor
    views: dict[int, torch.Tensor]
    missing: set[int] = field(default_factory=set)
    handle: Handle | None = None
    began: float = 0.0

    def begin(self, group: Group) -> None:
        """Begin to add the buffer up over all ranks."""
        self.began = time.perf_counter()
        self.handle = all_reduce(self.buffer, group)


def make_buckets(
    parameters: Sequence[torch.nn.Parameter],
    order: Iterable[int],
    limit: int,
    dtype: torch.dtype | None,
) -> list[Bucket]:
    """Assign parameters to buckets of at most ``limit`` bytes, in the order given.

    Args:
        parameters: that have gradients.
        order: their numbers, as their gradients come.
        limit: bytes; a larger parameter has a bucket of its own.
        dtype: of the buffers, and of the sums; each parameter's own when absent.
    """
    order = list(order)
    kinds = [(dtype or p.dtype, p.device) for p in parameters]
    buckets = []
    runs: dict[object, list[int]] = {}
    for number in order:
        runs.setdefault(kinds[number], []).append(number)
    for (kind, device), run in runs.items():  # type: ignore[misc]
        sizes = [parameters[number].numel() * kind.itemsize for number in run]
        # It fills from the back, and the run is in the order of use already.
        for places in bucket_gradients(sizes[::-1], limit):
            members = [run[len(run) - 1 - place] for place in places]
            buckets.append(_bucket(parameters, members, kind, device))
    # The one that is full first goes first: of several dtypes they alternate.
    when = {number: place for place, number in enumerate(order)}
    buckets.sort(key=lambda bucket: max(when[number] for number in bucket.members))
    if buckets:
        last = buckets[-1]
        buckets[-1] = _bucket(
            parameters, last.members, last.buffer.dtype, last.buffer.device, more=1
        )
    return buckets


def _bucket(
    parameters: Sequence[torch.nn.Parameter],
    members: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
    more: int = 0,
) -> Bucket:
    sizes = [parameters[number].numel() for number in members]
    buffer = torch.zeros(sum(sizes) + more, dtype=dtype, device=device)
    parts = buffer[: sum(sizes)].split(sizes)
    views = {
        number: part.view(parameters[number].shape)
        for number, part in zip(members, parts, strict=True)
    }
    return Bucket(members, buffer, views)
