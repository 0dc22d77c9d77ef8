"""What the tests of hostile answers share: how a result must have failed."""

from __future__ import annotations

from collections.abc import Callable

from autograder.judge.results import Result

GradeBoth = Callable[..., Result]


def fails(result: Result, words: str, status: str = "failed") -> None:
    """Assert how a result failed, that it earned nothing, and what it says."""
    assert result.status == status, result
    assert result.earned == 0.0
    # All but a speed that nobody could measure here.
    lost = [part for part in result.parts if part.earned is None]
    assert [part.name for part in lost] in ([], ["speed"]), result.parts
    assert words in result.message, result.message
