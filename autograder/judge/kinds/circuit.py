"""A circuit in a hardware description: simulated, never run on a device here."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from autograder.exercise import Problem
from autograder.judge.kinds.kind import Kind
from autograder.judge.results import Gate
from autograder.judge.values import cases_of, draw
from autograder.judge.words import trouble_message
from autograder.supervisor.workers import WorkerEnded
from autograder.worker.wire import Header

if TYPE_CHECKING:
    from autograder.judge.run import Run
    from autograder.judge.traces import Trace
    from autograder.judge.trial import Deadlines


class Circuit(Kind):
    """An Amaranth component, simulated clock by clock."""

    title: ClassVar[str] = "Amaranth"
    noun: ClassVar[str] = "component"
    counted: ClassVar[bool] = True

    def device(self, here: str) -> str:
        """Return the CPU, also next to a GPU."""
        return "cpu"

    def where(self, device: str) -> str:
        """Say that no circuit ran."""
        return "simulated"

    def case(self, problem: Problem, deadlines: Deadlines) -> Header:
        """Add the cycles that it may take."""
        return {"cycles": problem.cycles, **deadlines.limits}

    def structure(self, run: Run, trace: Trace | None) -> Gate:
        """Read which cells it is made of, in the first case."""
        from autograder.judge.trial import pack_problem, prepare

        case, purpose = next(cases_of(run.exercise, run.seed, public=True))
        problem = draw(run.exercise, case, run.seed, purpose)
        header, blobs = pack_problem(run, problem, {}, "cpu")
        header |= {"op": "cells", **run.deadlines.limits}
        with run.spawn() as worker:
            try:
                answer = prepare(run, worker)
                if answer is None:
                    end = run.deadlines.case_end
                    answer, _ = worker.ask(header, blobs, deadline_s=end, sizes=())
            except WorkerEnded as ended:
                return Gate("structure", ended.status, ended.message)
        listed = answer.get("cells")
        if answer.get("ok") is not True or not isinstance(listed, list):
            return Gate("structure", "failed", trouble_message(answer, run.exercise))
        cells = [cell for cell in listed if isinstance(cell, str)]
        for wanted in run.exercise.structure:
            missing = [h for h in wanted.holds if h not in cells]
            present = [h for h in wanted.lacks if h in cells]
            if missing or present:
                parts = [f"holds no {m}" for m in missing]
                parts += [f"holds {p}" for p in present]
                words = wanted.message or f"The circuit {' and '.join(parts)}."
                detail = {"missing": missing, "present": present}
                return Gate("structure", "failed", words, detail)
        return Gate("structure", "passed", "the cells that it is made of")

    def unmeasured(self, device: str) -> str:
        """Say why its time is no measure."""
        return "a simulated circuit is counted in clock cycles, and not timed"
