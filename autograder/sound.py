"""Two gates that read a trace: *sound*, and *moves what it should*.

A trace is made on the CPU, whatever the machine: the kernel runs on the public cases,
all of whose shapes are small, with every access recorded.
"""

from __future__ import annotations

import time
from typing import Any

from autograder.evidence import toolchain_is_missing
from autograder.exercise import Case, Count, Exercise
from autograder.oracle import cases_of, draw
from autograder.results import Gate
from autograder.run import Run
from autograder.traces import Found, NoTrace, Trace, read_trace
from autograder.trial import limits, pack_problem, poisons_for, prepare
from autograder.words import trouble_message
from autograder.worker.wire import Header
from autograder.workers import Worker, WorkerEnded

# What explains most comes first: a missing barrier is a race, and because of the
# race somebody reads what nobody has written yet.
_ORDER = (
    # A barrier that some do not come to orders nothing: the race is what it leaves.
    *("out of bounds", "unmapped access", "misaligned", "divergent barrier"),
    *("race", "absent lane", "deadlock", "timeout"),
)
# After these no further case is tried: it says all, or another would take as long.
_LAST = ("out of bounds", "unmapped access", "deadlock", "timeout")
_UNITS = {
    "sectors_per_request": ("sector", " a request"),
    "wavefronts_per_request": ("wavefront", " a request"),
    "bytes": ("byte", ""),
    "lanes_per_request": ("active lane", " a request"),
}
# On average of the 32: the last warp of a row may be half empty.
_FEWEST_LANES = 16
_NOTHING = "nothing in it is a kernel that could be traced"


def traceable(exercise: Exercise) -> bool:
    """Say whether what an exercise asks for can be traced."""
    if exercise.language == "cuda":
        return exercise.entry == "kernel"
    # Triton is watched in its interpreter, on a machine with a GPU too.
    return "import triton" in exercise.prelude


def check_sound(run: Run, worker: Worker) -> tuple[Gate, Trace | None]:
    """Trace the public cases; the first problem fails.

    Args:
        run: the exercise on its way.
        worker: one that holds the answer, on the CPU.

    Returns:
        The gate, and the first case's trace, which the counts are read from.
    """
    if not traceable(run.exercise):
        return Gate("sound", "not checked", _NOTHING), None
    if run.device == "cpu":
        return _trace_all(run, worker)
    with run.server.spawn() as other:
        try:
            trouble = prepare(
                other, run.exercise, run.cells, run.deadlines, backend="emulator"
            )
        except WorkerEnded as ended:
            return Gate(
                "sound", ended.status, f"On the emulator: {ended.message}"
            ), None
        if trouble is not None:
            return _not_emulated(run, trouble), None
        return _trace_all(run, other)


def _not_emulated(run: Run, trouble: Header) -> Gate:
    """Say why a kernel that a GPU's compiler takes has no trace here."""
    if trouble.get("kind") == "toolchain":
        request: Header = {
            "op": "prepare",
            "environ": {"KERNELWRIGHT_BACKEND": "emulator"},
        }
        if not toolchain_is_missing(run, request):
            return Gate("sound", "failed", "the trace was kept from being made")
    words = trouble_message(trouble, run.exercise).splitlines()
    why = words[0] if words else "it does not compile there"
    return Gate("sound", "not checked", f"the emulator cannot run it: {why}")


def _trace_all(run: Run, worker: Worker) -> tuple[Gate, Trace | None]:
    first: Trace | None = None
    launches = 0
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
        launches += trace.launches
        first = trace if first is None else first
    if bad:
        return _unsound(bad), None
    if not launches:
        return Gate("sound", "not checked", _NOTHING), None
    assert first is not None
    return Gate("sound", "passed", "no problem in any trace", figures(first)), first


def _ask(run: Run, worker: Worker, case: Case, purpose: str) -> Header:
    """Have one case traced."""
    problem = draw(run.exercise, case, run.seed, purpose)
    poisons = poisons_for(run.exercise, problem, run.seed)
    header, blobs = pack_problem(run.exercise, problem, poisons, "cpu")
    header |= {
        "op": "trace",
        "unwritten": sorted(poisons),
        "deadline_s": run.deadlines.kernel,
    }
    if run.exercise.language == "cuda":
        # The first trace compiles the source again, with its accesses recorded; what
        # it then runs is stopped by the emulator.
        seconds = run.deadlines.prepare + run.deadlines.case
    else:
        seconds = run.deadlines.case_end
        header |= limits(run.deadlines)
    answer, _ = worker.ask(header, blobs, deadline_s=seconds, sizes=())
    return answer


def _no_trace(run: Run, case: Case, answer: Header) -> Gate:
    """Say why there is no trace: a launch that no machine takes, a cell that raises."""
    message = trouble_message(answer, run.exercise)
    if answer.get("kind") == "toolchain" and toolchain_is_missing(
        run, {"op": "prepare"}
    ):
        return Gate("sound", "not checked", message)
    words, detail = f"With {case.name}: {message}", {"case": case.name}
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


def check_counts(exercise: Exercise, trace: Trace | None) -> Gate:
    """Hold a trace to each figure that an exercise declares."""
    if trace is None:
        return Gate("counts", "not checked", "there is no trace to count in")
    rows: list[dict[str, Any]] = []
    bad: list[str] = []
    for count in exercise.counts:
        got = trace.total(count.metric, count.space, count.op)
        # Shared memory may be avoided, where it is not asked for; what nobody saw move
        # in global memory was hidden from the trace.
        avoided = count.space == "shared" and count.at_least is None
        fine = avoided if got is None else count.earned_by(got)
        alone = _lanes_alone(count, trace) if fine else 0.0
        row: dict[str, Any] = {
            "metric": count.metric,
            "space": count.space,
            "op": count.op,
            "got": got,
            "ideal": count.ideal,
            "at_most": count.at_most,
            "at_least": count.at_least,
            "fine": fine and not alone,
            "line": trace.worst(
                "lanes_per_request" if alone else count.metric, count.space, count.op
            ),
        }
        rows.append(row)
        if alone:
            bad.append(_few_lanes(count, alone, row["line"]))
        elif not fine:
            bad.append(_missed(count, got, row["line"]))
    detail = {"counts": rows, **figures(trace)}
    if bad:
        detail["marked"] = sorted({r["line"] for r in rows if not r["fine"]} - {0})
        return Gate("counts", "failed", " ".join(bad), detail)
    return Gate("counts", "passed", ", ".join(map(count_words, rows)), detail)


def _lanes_alone(count: Count, trace: Trace) -> float:
    """Return how many lanes load together where they are few; else 0.

    A lane by itself touches one sector, which is no merit: a warp's 32, one after the
    other, then take 32 requests.
    """
    if count.metric != "sectors_per_request" or count.at_most is None:
        return 0.0
    lanes = trace.total("lanes_per_request", count.space, count.op)
    return lanes if lanes is not None and lanes < _FEWEST_LANES else 0.0


def _few_lanes(count: Count, lanes: float, line: int) -> str:
    where = f"line {line}: " if line else ""
    return (
        f"{where}on average {_many(lanes, 'lanes_per_request')} makes the "
        f"{count.space} {count.op}s: few sectors are no merit then. Let all 32 lanes "
        "of a warp take part, each with an element of its own."
    )


def count_words(row: dict[str, Any]) -> str:
    """Say one figure beside its ideal: ``global loads: 4 sectors a request``."""
    subject = f"{row['space']} {row['op']}s"
    if row["got"] is None:
        return f"no {subject}"
    got, beside = row["got"], f"(ideal {_number(row['ideal'])})"
    if row["metric"] in _BY_BLOCK:
        return f"{_BY_BLOCK[row['metric']][0]} a block: {_number(got)} {beside}"
    return f"{subject}: {_many(got, row['metric'])} {beside}"


def _missed(count: Count, got: float | None, line: int) -> str:
    what = f"{count.space} {count.op}s"
    if got is None and count.space == "shared":
        return f"The trace saw no {what}: the values are to pass through shared memory."
    if got is None:
        return f"The trace saw no {what}, and without any the output cannot be made."
    where = f"line {line}: " if line else ""
    bound = _bound(count)
    verb = "have" if count.metric == "lanes_per_request" else "take"
    if count.metric in _BY_BLOCK:
        did = _BY_BLOCK[count.metric][1].format(_number(got))
        return (
            f"{did}; the ideal is {_number(count.ideal)}, and {bound} earn the points."
        )
    return (
        f"{where}the {what} {verb} {_many(got, count.metric)}; the ideal is "
        f"{_number(count.ideal)}, and {bound} earn the points."
    )


# What a block does as a whole: its name, and the sentence that says how often.
_BY_BLOCK = {
    "barriers": ("barriers", "A block waits at {} barriers"),
    "shuffles": ("shuffles", "A block's warps shuffle {} times"),
    "products": ("products", "A block's warps multiply {} times on tensor cores"),
    "matrix_loads": ("ldmatrix", "A block's warps load {} times by ldmatrix"),
}


def _bound(count: Count) -> str:
    """Say which figures earn the points."""
    words = []
    if count.at_least is not None:
        words.append(f"at least {_number(count.at_least)}")
    if count.at_most is not None:
        words.append(f"at most {_number(count.at_most)}")
    return " and ".join(words)


def figures(trace: Trace) -> dict[str, Any]:
    """Return what each line of the source did, for the margin beside it."""
    lines: dict[str, list[str]] = {}
    for a in trace.accesses:
        if a.space == "global" and a.sectors:
            cost = _many(a.sectors / max(1, a.requests), "sectors_per_request")
            ideal = a.ideal_sectors
        elif a.space == "shared" and a.wavefronts:
            cost = _many(a.wavefronts / max(1, a.requests), "wavefronts_per_request")
            ideal = a.ideal_wavefronts
        else:
            cost, ideal = f"{a.bytes:,} bytes", 0.0
        words = f"{a.op} {a.buffer or a.space}: {cost}"
        if ideal:
            words += f" (ideal {_number(ideal)})"
        lines.setdefault(str(a.line), []).append(words)
    return {"figures": {line: words[:8] for line, words in lines.items()}}


def _many(value: float, metric: str) -> str:
    unit, each = _UNITS[metric]
    return f"{_number(value)} {unit}{'' if value == 1 else 's'}{each}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"
