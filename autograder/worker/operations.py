"""Which of torch's operations ran while an answer was called, under whatever name.

And what its ranks sent each other.

For a learner who has the library do the exercise; it is no wall against one who
changes the grader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelwright.torch_mode import QuickMode

_MOST, _LONGEST = 500, 100
_own = 0  # how deep in what the grader does itself


@contextmanager
def operations_seen() -> Iterator[set[str]]:
    """Collect the names of torch's functions that are called, and what they run.

    An alias, ``getattr`` or ``torch.ops`` calls the same function; what a compiled or
    scripted function runs is seen one level below.
    """
    seen: set[str] = set()
    # An operation that is taken apart before it reaches the lower level is seen above.
    with _Functions(seen), _Operations(seen):
        yield seen


@contextmanager
def unseen() -> Iterator[None]:
    """Do not take what the grader itself runs in between for the answer's."""
    global _own
    _own += 1
    try:
        yield
    finally:
        _own -= 1


def told(seen: set[str]) -> list[str]:
    """Return the names in a form that crosses the boundary."""
    return [name[:_LONGEST] for name in sorted(seen)[:_MOST]]


class Sends(QuickMode):
    """What a rank sends others: how many messages, and their bytes.

    One for all, such as an all-reduce, is one message, with the bytes that a rank
    sends in a ring.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.messages = self.bytes = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = str(func)
        if name == "c10d.send.default":
            self.messages += 1
            self.bytes += sum(tensor.nbytes for tensor in args[0])
        elif name in _COLLECTIVES:
            # What a rank sends at the least, whichever way the library takes.
            at, share = _COLLECTIVES[name]
            n = torch.distributed.get_world_size()
            self.messages += 1
            self.bytes += -(-share(n) * _nbytes(args[at]) // n)
        return func(*args, **(kwargs or {}))


# Which argument a rank brings, and how many n-ths of it a ring has it send.
_COLLECTIVES: dict[str, tuple[int, Callable[[int], int]]] = {
    "c10d.allreduce_.default": (0, lambda n: 2 * (n - 1)),
    "c10d.allgather_.default": (1, lambda n: (n - 1) * n),
    "c10d._allgather_base_.default": (1, lambda n: (n - 1) * n),
    "c10d.reduce_scatter_.default": (1, lambda n: n - 1),
    "c10d._reduce_scatter_base_.default": (1, lambda n: n - 1),
    "c10d.alltoall_.default": (1, lambda n: n - 1),
    "c10d.alltoall_base_.default": (1, lambda n: n - 1),
    "c10d.broadcast_.default": (0, lambda n: n),
    "c10d.reduce_.default": (0, lambda n: n),
    "c10d.gather_.default": (1, lambda n: n),
}


def _nbytes(value: Any) -> int:
    """Add up the bytes of tensors in lists, however nested."""
    if isinstance(value, torch.Tensor):
        return value.nbytes
    return sum(map(_nbytes, value))


class _Functions(TorchFunctionMode):
    def __init__(self, seen: set[str]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if not _own:
            self.seen.add(str(getattr(func, "__name__", "")))
        return func(*args, **(kwargs or {}))


class _Operations(QuickMode):
    def __init__(self, seen: set[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = seen

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if not _own:
            self.seen.add(str(func))
        return func(*args, **(kwargs or {}))
