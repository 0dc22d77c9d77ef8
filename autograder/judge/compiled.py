"""Whether the Triton kernels that ran under the interpreter compile for a GPU too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autograder.judge.kernels import kernels_only
from autograder.judge.results import Gate
from autograder.judge.words import clean, trouble_message, whole
from autograder.supervisor.workers import WorkerEnded
from autograder.worker.launches import MOST_KERNELS
from autograder.worker.wire import Header

if TYPE_CHECKING:
    from autograder.judge.run import Run

# What the compiler makes of a name that an exercise asks for.
_LOWERED = {
    "tl.load": ("tt.load", "tt.descriptor_load"),
    "tl.store": ("tt.store", "tt.descriptor_store", "tt.atomic_rmw"),
    "tl.dot": ("tt.dot",),
    "tl.exp": ("math.exp",),
    "tl.max": ("tt.reduce",),
    "tl.sum": ("tt.reduce",),
}


def compiled_kernels(run: Run) -> Gate:
    """Put the kernels that were launched through Triton's compiler; needs no GPU."""
    if len(run.kernels) > MOST_KERNELS:
        return Gate(
            "structure",
            "failed",
            f"its kernels are launched in {len(run.kernels)} ways, with other types or "
            f"constants each time; at most {MOST_KERNELS} are looked at, so launch "
            "fewer.",
        )
    try:
        cells = [
            {"id": cell.id, "source": kernels_only(cell.source)}
            for cell in run.cells
            if cell.language == "python"  # it may need kernels in CUDA C++ as well
        ]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Gate("structure", "failed", "the cell cannot be read as Python")
    request: Header = {
        "op": "kernels",
        "prelude": run.exercise.prelude,
        "cells": cells,
        "launches": run.kernels,
    }
    with run.server.spawn() as worker:
        try:
            answer, _ = worker.ask(request, deadline_s=run.deadlines.prepare, sizes=())
        except WorkerEnded as ended:
            return Gate("structure", ended.status, f"its kernels: {ended.message}")
    if answer.get("ok") is not True:
        message = trouble_message(answer, run.exercise)
        return Gate("structure", "not checked", message)
    if said := clean(answer.get("message"), 2000):
        kernel, line = clean(answer.get("kernel"), 100), whole(answer.get("line"))
        where = f"line {line}: " if line else ""
        message = f"{where}{kernel} does not compile for a GPU: {said}"
        words = {"words": "does not compile for a GPU", "line": line}
        return Gate("structure", "failed", message, words)
    return _holds(run, answer)


def _holds(run: Run, answer: Header) -> Gate:
    listed = answer.get("operations")
    made = [n for n in listed if isinstance(n, str)] if isinstance(listed, list) else []
    for wanted in run.exercise.structure:
        missing = [
            name
            for name in wanted.holds
            if name in _LOWERED
            and not any(each.startswith(_LOWERED[name]) for each in made)
        ]
        if made and missing:
            listed_names = ", ".join(missing)
            message = (
                wanted.message or f"No kernel that is launched uses {listed_names}."
            )
            return Gate("structure", "failed", message, {"missing": missing})
    return Gate("structure", "passed", "its kernels, compiled for sm_90")
