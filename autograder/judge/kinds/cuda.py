"""A kernel in CUDA C++: the grader launches it, the emulator can run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from autograder.exercise import Case
from autograder.judge.branches import two_programs
from autograder.judge.evidence import emulator_says, writer_of
from autograder.judge.kinds.kind import Kind
from autograder.judge.results import Gate
from autograder.judge.structure import check_machine_code
from autograder.worker.wire import Header

if TYPE_CHECKING:
    from autograder.judge.run import Run
    from autograder.judge.traces import Trace
    from autograder.judge.trial import Deadlines, Tried


class CudaKernel(Kind):
    """A ``__global__`` function; on a machine without a GPU the emulator runs it."""

    title: ClassVar[str] = "CUDA C++"
    noun: ClassVar[str] = "kernel"
    fills: ClassVar[bool] = True
    traced: ClassVar[bool] = True
    counted: ClassVar[bool] = True

    def refusal(self, run: Run) -> Gate | None:
        """Refuse a text that a GPU's compiler would read otherwise."""
        if run.device != "cpu":
            return None
        said = next(filter(None, (two_programs(c.source) for c in run.cells)), "")
        words = {"words": "two programs in one"}
        return Gate("compiles", "failed", said, words) if said else None

    def limits(self, deadlines: Deadlines) -> Header:
        """Set none: a compiler is a process of its own, and the emulator ends runs."""
        return {}

    def trace_s(self, deadlines: Deadlines) -> float:
        """Add the time to compile again, with every access recorded."""
        return deadlines.prepare + deadlines.case

    def writer(self, run: Run, tried: Tried) -> list[list[int]] | None:
        """Run ever fewer of its threads."""
        return writer_of(run, tried)

    def emulator_says(self, run: Run, case: Case, purpose: str) -> str:
        """Have the emulator name the line."""
        return "" if run.device == "cpu" else emulator_says(run, case, purpose)

    def has_structure(self, run: Run) -> bool:
        """Have it compiled for a GPU in any case: the emulator takes more of C++."""
        return run.device == "cpu" or super().has_structure(run)

    def structure(self, run: Run, trace: Trace | None) -> Gate:
        """Read the machine code that the real compiler makes of it."""
        return check_machine_code(run, trace)
