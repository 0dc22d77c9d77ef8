"""A function in Python that n processes of one torch.distributed group run."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from autograder.exercise import Problem
from autograder.judge.kinds.python import PythonFunction
from autograder.worker.wire import Header

if TYPE_CHECKING:
    from autograder.judge.trial import Deadlines


class Ranks(PythonFunction):
    """Each rank is a process on the CPU; they meet over gloo."""

    title: ClassVar[str] = "Ranks of torch.distributed"
    loopback: ClassVar[bool] = True
    counted: ClassVar[bool] = True

    def device(self, here: str) -> str:
        """Return the CPU, also next to a GPU."""
        return "cpu"

    def where(self, device: str) -> str:
        """Say that nothing stood for anything else."""
        return "CPU"

    def case(self, problem: Problem, deadlines: Deadlines) -> Header:
        """Leave the time to the ranks: their worker's own thread waits for them."""
        return {"ranks": {"count": problem.ranks, **deadlines.limits}}

    def unmeasured(self, device: str) -> str:
        """Say why one machine's processors are no measure."""
        return "the speed of ranks that share one machine's processors says nothing"
