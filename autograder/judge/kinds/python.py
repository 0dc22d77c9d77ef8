"""A function in Python: it is called, and returns its outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from autograder.judge.kinds.kind import Kind
from autograder.judge.results import Gate
from autograder.judge.structure import check_names

if TYPE_CHECKING:
    from autograder.judge.run import Run
    from autograder.judge.traces import Trace


class PythonFunction(Kind):
    """A function that works on tensors."""

    title: ClassVar[str] = "Python"

    def structure(self, run: Run, trace: Trace | None) -> Gate:
        """Read the names that it uses."""
        return check_names(run)


class CountedFunction(PythonFunction):
    """One whose adapter counts what it does, such as a model's positions."""

    counted: ClassVar[bool] = True
