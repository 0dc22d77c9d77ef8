"""The gate *sound*, and the trace that it and the counts read.

A trace is made on the CPU, whatever the machine: the kernel runs on the public cases,
all of whose shapes are small, with every access recorded.
"""

from __future__ import annotations

import time
from typing import Any

from autograder.exercise import Case
from autograder.judge.counts import figures
from autograder.judge.results import Gate
from autograder.judge.run import Run
from autograder.judge.traces import Found, NoTrace, Trace, read_trace
from autograder.judge.trial import pack_problem, poisons_for, prepare
from autograder.judge.values import cases_of, draw
from autograder.judge.words import trouble_message
from autograder.supervisor.workers import Worker, WorkerEnded
from autograder.worker.wire import Header

# What explains most comes first: a missing barrier is a race, and because of the
# race somebody reads what nobody has written yet.
_ORDER = (
    # A barrier that some do not come to orders nothing: the race is what it leaves.
    *("misuse", "out of bounds", "unmapped access", "misaligned", "divergent barrier"),
    *("race", "absent lane", "deadlock", "timeout"),
)
# After these no further case is tried: it says all, or another would take as long.
_LAST = ("misuse", "out of bounds", "unmapped access", "deadlock", "timeout")
_NOTHING = "nothing in it is a kernel that could be traced"


def check_sound(run: Run, worker: Worker) -> tuple[Gate, Trace | None]:
    """Trace the public cases; the first problem fails.

    Args:
        run: the exercise on its way.
        worker: one that holds the answer, on the CPU.

    Returns:
        The gate, and the trace of the case that the counts are read from.
    """
    if not run.kind.traced:
        return Gate("sound", "not checked", _NOTHING), None
    if run.device == "cpu":
        return _trace_all(run, worker)
    with run.server.spawn() as other:
        try:
            trouble = prepare(run, other, backend="emulator")
        except WorkerEnded as ended:
            return Gate(
                "sound", ended.status, f"On the emulator: {ended.message}"
            ), None
        if trouble is not None:
            return _not_emulated(run, trouble), None
        return _trace_all(run, other)


def _not_emulated(run: Run, trouble: Header) -> Gate:
    """Say why a kernel that a GPU's compiler takes has no trace here."""
    words = trouble_message(trouble, run.exercise).splitlines()
    why = words[0] if words else "it does not compile there"
    if trouble.get("kind") == "toolchain":
        kept = f"the trace was kept from being made: {' '.join(words)[:600]}"
        return Gate("sound", "failed", kept, {"toolchain": True})
    return Gate("sound", "not checked", f"the emulator cannot run it: {why}")


def _trace_all(run: Run, worker: Worker) -> tuple[Gate, Trace | None]:
    traces: list[Trace] = []
    bad: list[tuple[Case, Trace]] = []
    until = time.monotonic() + run.deadlines.all
    for case, purpose in cases_of(run.exercise, run.seed, public=True):
        if time.monotonic() > until:
            words = f"all traces together took over {run.deadlines.all:g} s"
            return Gate("sound", "timeout", words), None
        try:
            answer = _ask(run, worker, case, purpose)
            if answer.get("ok") is not True:
                return _no_trace(run, case, answer), None
            trace = read_trace(answer)
        except WorkerEnded as ended:
            words = f"With {case.name}: {ended.message}."
            return Gate("sound", ended.status, words), None
        except NoTrace as error:
            words = f"what came back is no trace of the grader's ({error})"
            return Gate("sound", "failed", words), None
        if trace.problems:
            bad.append((case, trace))
            if any(found.kind in _LAST for found in trace.problems):
                break
        traces.append(trace)
    if bad:
        return _unsound(bad), None
    if not any(trace.launches for trace in traces):
        return Gate("sound", "not checked", _NOTHING), None
    told = traces[run.exercise.counted]
    return Gate("sound", "passed", "no problem in any trace", figures(told)), told


def _ask(run: Run, worker: Worker, case: Case, purpose: str) -> Header:
    """Have one case traced."""
    problem = draw(run.exercise, case, run.seed, purpose)
    poisons = poisons_for(run, problem)
    header, blobs = pack_problem(run, problem, poisons, "cpu")
    header |= {
        "op": "trace",
        "unwritten": sorted(poisons),
        "deadline_s": run.deadlines.kernel,
        **run.kind.limits(run.deadlines),
    }
    seconds = run.kind.trace_s(run.deadlines)
    answer, _ = worker.ask(header, blobs, deadline_s=seconds, sizes=())
    return answer


def _no_trace(run: Run, case: Case, answer: Header) -> Gate:
    """Say why there is no trace: a launch that no machine takes, a cell that raises."""
    message = trouble_message(answer, run.exercise)
    words = f"With {case.name}: {message}"
    detail = {"case": case.name, "toolchain": answer.get("kind") == "toolchain"}
    if answer.get("kind") == "timeout":
        return Gate("sound", "timeout", words, detail)
    return Gate("sound", "failed", words, detail)


def _rank(found: Found) -> int:
    return _ORDER.index(found.kind) if found.kind in _ORDER else len(_ORDER)


def _unsound(bad: list[tuple[Case, Trace]]) -> Gate:
    """Name the problem that explains most, in the first case that shows it."""
    case, trace = min(bad, key=lambda seen: min(map(_rank, seen[1].problems)))
    listed = sorted(trace.problems, key=lambda f: (_rank(f), f.lines))
    worst = listed[0]
    times = f" It was seen {worst.count:,} times." if worst.count > 1 else ""
    said = worst.message.rstrip(".")
    # Some messages begin with their kind; the others are given it.
    kind = "" if said.startswith(worst.kind) else f"{worst.kind}, "
    message = f"With {case.name}: {kind}{said}.{times}"
    more = [f"{f.kind} on line {f.lines[0]}" for f in listed[1:] if f.lines]
    if more := list(dict.fromkeys(more)):
        message += f" Besides: {', '.join(more[:4])}."
    detail: dict[str, Any] = {
        "case": case.name,
        "line": worst.lines[0] if worst.lines else 0,
        "marked": sorted({line for f in listed for line in f.lines if line}),
        "problems": [found.to_json() for found in listed[:10]],
        **figures(trace),
    }
    if worst.kind == "timeout":
        return Gate("sound", "timeout", message, detail)
    return Gate("sound", "failed", message, detail)
