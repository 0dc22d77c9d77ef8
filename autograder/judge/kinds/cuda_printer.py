"""A function in Python that prints CUDA C++, compiles it and launches it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from autograder.exercise import Exercise
from autograder.judge.kinds.python import PythonFunction
from autograder.judge.results import Gate
from autograder.judge.structure import check_names, instructions
from autograder.judge.words import clean, trouble_message
from autograder.supervisor.workers import WorkerEnded
from autograder.worker.wire import Header

if TYPE_CHECKING:
    from autograder.judge.run import Run
    from autograder.judge.traces import Trace
    from autograder.judge.trial import Deadlines

# Of the first case: what it computes, and its gradients.
_MOST = 2
_ARCH = "sm_90"


class CudaPrinter(PythonFunction):
    """Its kernels are traced on the emulator, and compiled for a GPU in any case."""

    title: ClassVar[str] = "CUDA C++ printed by Python"
    traced: ClassVar[bool] = True
    counted: ClassVar[bool] = True

    def limits(self, deadlines: Deadlines) -> Header:
        """Say what is traced; the time that a trace has is as of a Python function."""
        return {**super().limits(deadlines), "printed": True}

    def trace_s(self, deadlines: Deadlines) -> float:
        """Add the time to compile again, with every access recorded."""
        return deadlines.prepare + deadlines.case

    def objection(
        self, exercise: Exercise, answer: Header, data: Sequence[bytes], right: bool
    ) -> str:
        """Ask for kernels where there was work for any."""
        if right and any(data) and not answer.get("kernels"):
            return (
                "the values are right, and no kernel was launched: compile what you "
                "print with kw.cuda.compile, and launch it."
            )
        return super().objection(exercise, answer, data, right)

    def structure(self, run: Run, trace: Trace | None) -> Gate:
        """Read the names in the cell, and the machine code of what it printed."""
        plain = [w for w in run.exercise.structure if not _mnemonics(w.lacks)]
        gate = check_names(
            replace(
                run, exercise=replace(run.exercise, structure=tuple(plain)), kernels=[]
            )
        )
        if gate.status != "passed":
            return gate
        for kernel in run.kernels[:_MOST]:
            said = _machine_code(run, kernel)
            if said is not None:
                return said
        return Gate("structure", "passed", f"what it printed, compiled for {_ARCH}")


def _mnemonics(names: Sequence[str]) -> bool:
    return any(name.isupper() for name in names)


def _machine_code(run: Run, kernel: Header) -> Gate | None:
    """Compile one kernel for a GPU, which takes less of C++ than the emulator."""
    request: Header = {
        "op": "sass",
        "source": clean(kernel.get("source"), 1 << 16),
        "name": clean(kernel.get("name"), 200),
        "arch": _ARCH,
        "read": True,
    }
    with run.server.spawn() as worker:
        try:
            answer, blobs = worker.ask(
                request, deadline_s=run.deadlines.prepare, most_bytes=64 << 20
            )
        except WorkerEnded as ended:
            return Gate("structure", ended.status, ended.message)
    if answer.get("ok") is not True:
        words = {
            "words": "does not compile for a GPU",
            "toolchain": answer.get("kind") == "toolchain",
        }
        message = trouble_message({**answer, "line": 0}, run.exercise)
        said = f"what is printed, compiled for {_ARCH}: {message}"
        return Gate("structure", "failed", said, words)
    code = instructions(blobs[0].decode("utf-8", "replace") if blobs else "")
    for wanted in run.exercise.structure:
        present = [
            name
            for name in wanted.lacks
            if name.isupper() and any(c.startswith(name) for c in code)
        ]
        if present:
            return Gate("structure", "failed", wanted.message, {"present": present})
    return None
