"""Which of torch's operations ran while an answer was called, under whatever name.

For a learner who has the library do the exercise; it is no wall against one who
changes the grader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

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


def is_own() -> bool:
    """Say whether what runs now is the grader's."""
    return _own > 0


def told(seen: set[str]) -> list[str]:
    """Return the names in a form that crosses the boundary."""
    return [name[:_LONGEST] for name in sorted(seen)[:_MOST]]


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
