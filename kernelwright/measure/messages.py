"""When messages among ranks begin and end, beside the backward that hides them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

Event = tuple[str, str, float, float]
"""What, its name, begin and end in seconds of ``time.perf_counter``."""


@contextmanager
def note_messages(events: list[Event]) -> Iterator[None]:
    """Append an event for each ``dist.all_reduce``, from its begin to its end.

    The end of one that is not waited for is noted by the library's own thread. Call it
    as ``dist.all_reduce``, with ``import torch.distributed as dist``.
    """
    real = dist.all_reduce
    begun = 0

    def all_reduce(tensor: torch.Tensor, *how: Any, **named: Any) -> Any:
        nonlocal begun
        name, begin = f"message {begun}, {tensor.nbytes:,} bytes", time.perf_counter()
        begun += 1
        work = real(tensor, *how, **named)

        def ended(_: object = None) -> None:
            events.append(("all-reduce", name, begin, time.perf_counter()))

        if work is None:
            ended()
        else:
            work.get_future().then(ended)
        return work

    dist.all_reduce = all_reduce
    try:
        yield
    finally:
        dist.all_reduce = real


def note_backward(
    parameters: Iterable[torch.Tensor],
    backward: Callable[[], object],
    events: list[Event],
) -> None:
    """Run a backward; append an event for it, and one for each gradient that it makes.

    Args:
        parameters: whose gradients are noted.
        backward: runs it.
        events: where to.
    """

    def made(number: int) -> Callable[[torch.Tensor], None]:
        def note(_: torch.Tensor) -> None:
            now = time.perf_counter()
            events.append(("gradient", f"parameter {number}", now, now))

        return note

    hooks = [
        # Before what others do once it is in place, such as sending it.
        parameter.register_hook(made(number))
        for number, parameter in enumerate(parameters)
    ]
    begin = time.perf_counter()
    try:
        backward()
    finally:
        for hook in hooks:
            hook.remove()
    events.append(("backward", "", begin, time.perf_counter()))
