"""Who watches the launches of this thread: what records a call, to repeat it."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any, Protocol

from kernelwright.cuda.backends import Dim3, Program


class Varying:
    """A number that differs from call to call, and decides nothing.

    It is none itself, so that nothing can be computed of it: only a launch takes it.

    Args:
        value: of this call.
        place: of the call's argument: its position or its name.
    """

    __slots__ = ("place", "value")

    def __init__(self, value: float, place: int | str) -> None:
        self.value = value
        self.place = place

    def __eq__(self, other: object) -> bool:
        """Refuse: what a call decides must not depend on it."""
        raise TypeError("a number that varies from call to call decides nothing")

    def __bool__(self) -> bool:
        """Refuse likewise."""
        raise TypeError("a number that varies from call to call decides nothing")

    __hash__ = None  # type: ignore[assignment]


def unwrapped(value: Any) -> Any:
    """Return the number that varies, or what else a value is."""
    return value.value if type(value) is Varying else value


class Watcher(Protocol):
    """Told of each launch before it is made."""

    def saw_launch(
        self,
        program: Program,
        kernel: str,
        grid: Dim3,
        block: Dim3,
        shared: int,
        arguments: tuple[Any, ...],
        packed: list[bytes],
    ) -> None:
        """Take note of a launch: its arguments, and the bytes that each became."""

    def paused(self) -> AbstractContextManager[None]:
        """Watch nothing within."""


class _Watched(threading.local):
    watcher: Watcher | None = None


watched = _Watched()
"""``watched.watcher`` is this thread's, or ``None``."""
