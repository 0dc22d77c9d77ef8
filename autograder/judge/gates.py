"""The gates that an answer passes, in order, stopping at the first that it does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from autograder.judge.counts import check_counts
from autograder.judge.picture import picture
from autograder.judge.recognise import EXPLORE_S, known_mistake
from autograder.judge.relation import relation
from autograder.judge.results import Gate, GateStatus
from autograder.judge.run import Run
from autograder.judge.selftest import ESSENTIAL
from autograder.judge.sound import check_sound
from autograder.judge.traces import Trace
from autograder.judge.trial import Tried, prepare
from autograder.judge.values import cases_of
from autograder.judge.words import (
    clean,
    trouble_message,
    whole,
    writer_words,
    wrong_message,
)
from autograder.supervisor.workers import Worker, WorkerEnded
from autograder.worker.wire import Header

Progress = Callable[[str], None]

_FINE = ("passed", "not checked", "not measured")
_UNDEFINED = (
    " What a masked tl.load without other= holds behind its mask is undefined: NaN "
    "here, anything on a GPU. Where such lanes come into a sum, a maximum or a "
    "product, say what they hold: other=0.0, or float('-inf') for a maximum."
)


def pass_through(run: Run, progress: Progress) -> list[Gate]:
    """Take an answer through every gate that can be judged here."""
    for name in ESSENTIAL:
        if name in run.unfit:
            return [run.unfit[name]]
    progress("compiling")
    if refused := run.kind.refusal(run):
        return [refused]
    passed, trace = _compile_and_try(run, progress)
    if not _fine(passed):
        return passed
    # What must stand in the machine code is part of being right, as the counts are
    # not: it is asked first.
    if run.kind.has_structure(run):
        progress("reading its machine code")
        passed.append(run.unfit.get("structure") or run.kind.structure(run, trace))
        if not _fine(passed):
            return passed
    if run.exercise.counts:
        trace = trace or Trace.of_run(run.counted)
        counts = run.unfit.get("counts")
        passed.append(counts or check_counts(run, trace))
    # What cannot be measured is said in any case.
    asked = run.exercise.speed is not None
    if asked and (_fine(passed) or run.kind.unmeasured(run.device)):
        progress("timing")
        passed.append(_fast(run))
    return passed


def _fine(passed: list[Gate]) -> bool:
    return all(gate.status in _FINE for gate in passed)


def _compile_and_try(run: Run, progress: Progress) -> tuple[list[Gate], Trace | None]:
    """Compile, trace, then try the cases, in one worker."""
    worker = run.spawn()
    with worker:
        try:
            trouble = prepare(run, worker)
        except WorkerEnded as ended:
            gate = Gate("compiles", ended.status, ended.message)
            worker.end()
            run.printed = worker.capture.of_the_answer()
            return [gate], None
        if trouble is not None:
            worker.end()
            run.printed = worker.capture.of_the_answer()
            return [_compile_gate(run, trouble)], None
        progress("tracing")
        sound, trace = run.unfit.get("sound"), None
        if sound is None:
            sound, trace = check_sound(run, worker)
        passed = [Gate("compiles", "passed"), sound]
        if sound.status in _FINE:
            right = _right(run, worker, progress)
            if right.status == "failed" and trace is not None and trace.notes:
                right = replace(right, message=f"{right.message} {trace.notes[0]}.")
            passed.append(right)
        # What did not end would take as long again.
        elif (
            sound.status == "failed"
            and run.device == "cpu"
            and not _found(sound, "timeout")
        ):
            # What an access out of bounds brought back is anybody's: values that follow
            # from it resemble some known mistake by accident.
            astray = _found(sound, "out of bounds")
            more = _what_comes_of_it(run, worker, known=not astray)
            passed[-1] = replace(sound, message=f"{sound.message}{more}")
    run.printed = worker.capture.of_the_answer()
    return passed, trace


def _found(sound: Gate, kind: str) -> bool:
    """Say whether the trace found a problem of a kind."""
    return any(found["kind"] == kind for found in sound.detail.get("problems", ()))


def _what_comes_of_it(run: Run, worker: Worker, *, known: bool) -> str:
    """Say what an unsound answer writes beside its outputs, or is a ``known`` mistake.

    Args:
        run: what is graded.
        worker: holds the answer.
        known: whether to compare its values with known mistakes.
    """
    cases = list(cases_of(run.exercise, run.seed, public=True))
    until = time.monotonic() + EXPLORE_S
    for number, (case, purpose) in enumerate(cases):
        if time.monotonic() > until:
            break
        try:
            tried = run.try_case(worker, case, purpose)
        except WorkerEnded:
            break
        if tried.kind == "side effect":
            return f" What comes of it: {tried.trouble}"
        if tried.trouble:
            break
        if not tried.right:
            if not known:
                return ""
            near = known_mistake(run, worker, tried, cases, number)
            return f" {near[1]}" if near else ""
    return ""


def _compile_gate(run: Run, trouble: Header) -> Gate:
    """Say why a cell could not be loaded."""
    exercise, kind = run.exercise, trouble.get("kind")
    message = trouble_message(trouble, exercise)
    listed = trouble.get("diagnostics")
    detail: dict[str, Any] = {"line": whole(trouble.get("line"))}
    detail["toolchain"] = kind == "toolchain"
    if isinstance(listed, list):
        detail["diagnostics"] = [
            {
                "line": whole(d.get("line")),
                "column": whole(d.get("column")),
                "severity": clean(d.get("severity"), 20),
                "message": clean(d.get("message")),
            }
            for d in listed[:20]
            if isinstance(d, dict)
        ]
    if kind == "missing":
        detail["words"] = f"no {run.kind.noun} {exercise.name}"
    elif kind in ("exception", "exit"):
        detail["words"] = "the cell raises"
    status: GateStatus = "timeout" if kind == "timeout" else "failed"
    return Gate("compiles", status, message, detail)


def _right(run: Run, worker: Worker, progress: Progress) -> Gate:
    """Try every case; on the first failure find out all that can be said about it."""
    until = time.monotonic() + run.deadlines.all
    cases = list(cases_of(run.exercise, run.seed, run.public))
    for number, (case, purpose) in enumerate(cases):
        progress(f"case {number + 1} of {len(cases)}")
        name = case.name if purpose.startswith("public") else f"hidden case {case.name}"
        if time.monotonic() > until:
            words = f"all cases together took over {run.deadlines.all:g} s"
            return Gate("right", "timeout", words)
        try:
            tried = run.try_case(worker, case, purpose)
        except WorkerEnded as ended:
            run.cases.append((name, False))
            message = f"With {name}: {ended.message}."
            message += run.kind.emulator_says(run, case, purpose)
            return Gate("right", ended.status, message)
        run.cases.append((name, tried.right))
        if tried.right:
            continue
        if tried.trouble:
            asked = tried.kind in ("fault", "timeout")
            more = run.kind.emulator_says(run, case, purpose) if asked else ""
            return Gate(
                "right",
                "timeout" if tried.kind == "timeout" else "failed",
                f"With {name}: {tried.trouble}{more}",
                {"case": name, **tried.detail},
            )
        near = known_mistake(run, worker, tried, cases, number)
        return _wrong_gate(run, name, tried, near)
    words = "public checks" if run.public else "cases"
    return Gate("right", "passed", f"{len(cases)} {words}", {"cases": len(cases)})


def _relation(tried: Tried, name: str) -> str:
    verdict, problem = tried.verdict, tried.problem
    assert verdict is not None and problem is not None
    if name not in verdict.wanted:  # of a withheld reference places alone are known
        return ""
    return relation(
        name,
        verdict.outputs[name],
        verdict.wanted[name],
        verdict.bad[name],
        problem.arguments,
    )


def _wrong_gate(
    run: Run, name: str, tried: Tried, near: tuple[str, str] | None
) -> Gate:
    assert tried.verdict is not None and tried.verdict.wrong is not None
    assert tried.problem is not None
    wrong = tried.verdict.wrong
    untouched = bool(wrong.untouched[wrong.index])
    writer = None if untouched else run.kind.writer(run, tried)
    where = wrong_message(
        wrong,
        name,
        run.kind.element(tried.problem, wrong.output, wrong.place),
        writer_words(writer) if writer else "",
    )
    detail: dict[str, Any] = {
        "case": name,
        "output": wrong.output,
        "index": list(wrong.place),
        "got": str(wrong.got),
        "expected": str(wrong.expected),
        "untouched": untouched,
        "wrong": int(wrong.wrong.sum()),
        "total": wrong.wrong.numel(),
        "picture": picture(wrong),
        "writer": writer,
        "mistake": near[0] if near else None,
        "where": where,
    }
    message = f"{near[1]} {where}" if near else where + _relation(tried, wrong.output)
    if not near and tried.undefined and wrong.got != wrong.got:  # NaN
        message += _UNDEFINED
    return Gate("right", "failed", message, detail)


def _fast(run: Run) -> Gate:
    """Have the answer timed against its peer, where that can be done."""
    if unmeasured := run.kind.unmeasured(run.device):
        return Gate("fast", "not measured", unmeasured)
    from autograder.judge.speed import judge_speed

    verdict = judge_speed(
        run.exercise,
        run.cells,
        seed=run.seed,
        budget_s=run.speed_budget_s,
        server=run.server,
    )
    detail = verdict.to_json()
    return Gate("fast", verdict.status, clean(verdict.message), detail)
