"""How often this process imitated a GPU: a clock says nothing of such a launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_launches = 0


def note() -> None:
    """Count a launch that the emulator or Triton's interpreter carries out."""
    global _launches
    _launches += 1


def imitates(fn: Callable[..., object], *args: Any) -> bool:
    """Call a function once, and say whether it launched what only imitates a GPU."""
    before = _launches
    fn(*args)
    return _launches > before
