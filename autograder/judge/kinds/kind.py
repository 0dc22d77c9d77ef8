"""The interface of a kind of answer, and what most kinds have in common.

The gates ask it wherever kinds differ. Its counterpart, which calls the answer, is
``autograder.worker.entries``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from autograder.exercise import Case, Exercise, Problem
from autograder.judge.results import Gate
from autograder.judge.words import not_its_own
from autograder.worker.wire import Header

if TYPE_CHECKING:
    from autograder.judge.run import Run
    from autograder.judge.traces import Trace
    from autograder.judge.trial import Deadlines, Tried


class Kind(ABC):
    """How one kind of answer is prepared, run, traced, examined and timed.

    Attributes:
        title: what it is written in, as the self-test's messages call it.
        noun: what the cell must define.
        fills: whether the outputs are arguments that it writes; else it returns them.
        traced: whether its run can be traced.
        counted: whether what it does can be counted, by a trace or by its run.
        loopback: whether its worker must be able to connect to itself.
    """

    title: ClassVar[str]
    noun: ClassVar[str] = "function"
    fills: ClassVar[bool] = False
    traced: ClassVar[bool] = False
    counted: ClassVar[bool] = False
    loopback: ClassVar[bool] = False

    def device(self, here: str) -> str:
        """Return the device that it runs on, of a machine that has ``here``."""
        return here

    def where(self, device: str) -> str:
        """Say on what it was right."""
        # Plain Python stands for nothing else.
        here = "emulated" if self.traced else "CPU"
        return "GPU" if device == "cuda" else here

    def refusal(self, run: Run) -> Gate | None:
        """Say what in its text keeps it from being compiled here, if anything."""
        return None

    def limits(self, deadlines: Deadlines) -> Header:
        """Return what its worker is told of the time that it has to load or trace."""
        return deadlines.limits

    def case(self, problem: Problem, deadlines: Deadlines) -> Header:
        """Return what its worker is told beside a case's values."""
        return deadlines.limits

    def trace_s(self, deadlines: Deadlines) -> float:
        """Return when the supervisor ends a trace."""
        return deadlines.case_end

    def element(self, problem: Problem, output: str, place: Sequence[int]) -> str:
        """Name an element of an output, and apart from it the rank that has it."""
        if labels := problem.outputs[output].labels:
            return labels[place[0]]
        if problem.ranks and output in problem.replicated:
            output, place = f"{output}[{place[0]}]", place[1:]
        elif problem.ranks:
            rank, place = place[0], place[1:]
            output = f"on rank {rank}, {output}"
        return f"{output}[{', '.join(map(str, place))}]" if place else output

    def objection(
        self, exercise: Exercise, answer: Header, data: Sequence[bytes], right: bool
    ) -> str:
        """Say what is wrong with how the values came to be; '' if nothing.

        Args:
            exercise: what was asked for.
            answer: what the worker says of the run.
            data: the outputs.
            right: whether the values are.
        """
        return not_its_own(answer, exercise) if right else ""

    def writer(self, run: Run, tried: Tried) -> list[list[int]] | None:
        """Find the block and thread that wrote the first wrong element, if one did."""
        return None

    def emulator_says(self, run: Run, case: Case, purpose: str) -> str:
        """Say more of a case that a GPU gave up on; '' where nothing can be."""
        return ""

    def has_structure(self, run: Run) -> bool:
        """Say whether there is anything to examine."""
        return bool(run.exercise.structure)

    @abstractmethod
    def structure(self, run: Run, trace: Trace | None) -> Gate:
        """Examine what the answer is made of."""

    def unmeasured(self, device: str) -> str:
        """Say why its speed cannot be measured on a device; '' where it can."""
        return "" if device == "cuda" else "speed is measured on a GPU only"
