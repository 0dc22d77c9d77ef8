"""The judge of the course: ``check`` and ``hint`` in a notebook, ``make grade``.

Nothing is imported until it is asked for: a worker's process imports this package
too, and must hold nothing of what judges it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autograder.learner.check import check, hint

__all__ = ["check", "hint"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from autograder.learner import check as face

        return getattr(face, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
