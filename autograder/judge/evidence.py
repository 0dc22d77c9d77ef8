"""What else can be found out about an answer that failed, for its learner's sake.

Nothing here changes a verdict: where a question cannot be answered, less is said.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from autograder.exercise import Case
from autograder.judge.trial import Tried, pack_problem, prepare, try_case
from autograder.supervisor.workers import WorkerEnded

if TYPE_CHECKING:
    from autograder.judge.run import Run


def writer_of(run: Run, tried: Tried) -> list[list[int]] | None:
    """Ask a fresh worker which block and thread wrote the first wrong element."""
    problem, verdict = tried.problem, tried.verdict
    assert problem is not None and verdict is not None and verdict.wrong is not None
    header, blobs = pack_problem(run, problem, tried.poisons, "cpu")
    header |= {
        "op": "blame",
        "source": run.cells[-1].source,
        "output": verdict.wrong.output,
        "index": verdict.wrong.index,
        "deadline_s": run.deadlines.kernel,
    }
    with run.server.spawn() as worker:
        try:
            answer, _ = worker.ask(header, blobs, deadline_s=run.deadlines.case_end)
        except WorkerEnded:
            return None
    return _block_and_thread(answer.get("writer"))


def emulator_says(run: Run, case: Case, purpose: str) -> str:
    """Try a case that a GPU gave up on under the emulator, which names the line."""
    with run.server.spawn() as worker:
        try:
            if prepare(run, worker, backend="emulator") is not None:
                return ""
            tried = try_case(replace(run, device="cpu"), worker, case, purpose)
        except WorkerEnded:
            return ""
    return f" The emulator says: {tried.trouble}" if tried.trouble else ""


def _block_and_thread(value: object) -> list[list[int]] | None:
    """Take what a worker says for what it should be, or for nothing."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    for part in value:
        if not isinstance(part, list) or len(part) != 3:
            return None
        if not all(type(i) is int and 0 <= i < 1 << 32 for i in part):
            return None
    return value
