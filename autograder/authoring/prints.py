"""Writes the prints of known mistakes: every edited answer is run on the public cases.

``make mistakes`` does it. Two mistakes with different sentences and one print are
refused, and so is a print that equals the answer's: either the grader has a hole, or
the edit is no mistake.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch

from autograder.authoring.mistakes import EQUIVALENT, Mistake, mistakes, record_of
from autograder.exercise import Case, Exercise, Outputs, Problem
from autograder.judge.judge import Judge
from autograder.judge.prints import (
    DIGITS,
    DIGITS_OF_DOUBLES,
    DIGITS_OF_EXACT,
    UNWRITTEN,
    Number,
    Print,
    Prints,
    parse,
    path_of,
)
from autograder.judge.trial import Tried, prepare
from autograder.judge.values import (
    Verdict,
    allowed_error,
    cases_of,
    draw,
    given,
    is_mistaken,
    scales_of,
)
from autograder.regions import cell_source
from autograder.submission.submitted import Cells
from autograder.supervisor.workers import WorkerEnded

# Of an output with no more elements all are kept; else at first so many, spread.
_WHOLE, _SPREAD = 24, 6


class PrintError(Exception):
    """The prints of an exercise cannot be written as its mistakes stand."""


@dataclass(frozen=True)
class Shown:
    """What one mistake put out: its verdict on each public case, or the trouble."""

    mistake: Mistake
    cases: tuple[Verdict | str, ...]


def made_of(exercise: Exercise) -> str:
    """Return a hash of what an exercise's prints are made of: records and answer."""
    # What stands at the end and is no mistake has no print.
    records, _, _ = record_of(exercise).read_text().partition(f"\n[{EQUIVALENT}]\n")
    texts = (records, cell_source(exercise, solved=True))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def write_prints(exercise: Exercise, judge: Judge) -> int:
    """Run an exercise's mistakes, write their prints, and return how many there are.

    Raises:
        PrintError: two cannot be told apart, or one cannot be told from the answer.
    """
    known = [one for one in mistakes(exercise) if not one.gate]
    cases = [case for case, _ in cases_of(exercise, 0, public=True)]
    problems = [draw(exercise, case, 0, f"public {i}") for i, case in enumerate(cases)]
    shown = [Shown(one, tuple(_run(exercise, one, judge))) for one in known]
    alike = [
        one.mistake.name
        for one in shown
        if all(isinstance(case, Verdict) and case.right for case in one.cases)
    ]
    if alike:
        raise PrintError(
            f"{exercise.id}: {', '.join(alike)}: right on every public case. If it is "
            "a mistake, add a case that shows it; if another gate rejects it, say "
            "which: gate = 'counts'"
        )
    kept: dict[str, Any] = {}
    places: list[dict[str, Any]] = []
    for number, (case, problem) in enumerate(zip(cases, problems, strict=True)):
        at, reference = _places(exercise, case, problem, number, shown)
        places.append(
            {
                "name": case.name,
                "at": {name: where.tolist() for name, where in at.items()},
                "answer": {
                    name: _told(reference[name].reshape(-1)[where])
                    for name, where in at.items()
                },
                "within": _within(exercise, case, problem, at, reference),
            }
        )
        for one in shown:
            entry = kept.setdefault(one.mistake.name, _words(one.mistake))
            came = one.cases[number] if number < len(one.cases) else "not tried"
            if isinstance(came, str):
                entry["cases"][str(number)] = {"trouble": came}
            elif not came.right:
                entry["cases"][str(number)] = _print(exercise, came, at)
    text = _text(made_of(exercise), places, kept)
    doubles = _doubles(exercise, parse(text), shown, cases, problems)
    kept = {name: one for name, one in kept.items() if name not in doubles}
    # Of two with one print, that with a premise is asked first.
    premises = {"needs", "lacks"}
    kept = dict(sorted(kept.items(), key=lambda item: not premises & item[1].keys()))
    path = path_of(exercise)
    path.parent.mkdir(exist_ok=True)
    path.write_text(_text(made_of(exercise), places, kept), encoding="utf-8")
    return len(kept)


def _run(exercise: Exercise, mistake: Mistake, judge: Judge) -> Iterator[Verdict | str]:
    """Try a mistake on every public case, as the judge does."""
    run = judge.run_of(exercise, Cells({exercise.id: mistake.cell, **needed(exercise)}))
    with run.spawn() as worker:
        trouble = prepare(run, worker)
        if trouble is not None:
            raise PrintError(
                f"{exercise.id}: {mistake.name} does not load: "
                f"{trouble.get('message')}. Where that is the mistake, say so: "
                "gate = 'compiles'"
            )
        for case, purpose in cases_of(exercise, 0, public=True):
            try:
                tried: Tried = run.try_case(worker, case, purpose)
            except WorkerEnded as ended:
                raise PrintError(
                    f"{exercise.id}: {mistake.name} with {case.name}: {ended.message}. "
                    "Where the trace says so first: gate = 'sound'"
                ) from None
            yield tried.kind if tried.verdict is None else tried.verdict


def needed(exercise: Exercise) -> dict[str, str]:
    """Return the answers that an exercise's cell is run beside, by exercise."""
    from autograder.exercises import all_exercises

    every = all_exercises()
    return {name: cell_source(every[name], solved=True) for name in exercise.needs}


def _places(
    exercise: Exercise, case: Case, problem: Problem, number: int, shown: list[Shown]
) -> tuple[dict[str, torch.Tensor], Outputs]:
    """Choose where a case's outputs are looked at: where any two of them differ."""
    reference = exercise.reference(given(problem))
    scales = scales_of(exercise, given(problem))
    verdicts = [
        came
        for one in shown
        if number < len(one.cases) and isinstance(came := one.cases[number], Verdict)
    ]
    chosen: dict[str, torch.Tensor] = {}
    for name, output in problem.outputs.items():
        right = reference[name].reshape(-1).double()
        if right.numel() <= _WHOLE:
            chosen[name] = torch.arange(right.numel())
            continue
        at = {round(i * (right.numel() - 1) / (_SPREAD - 1)) for i in range(_SPREAD)}
        seen = [right.to(output.dtype)]
        seen += [v.outputs[name].reshape(-1) for v in verdicts if not v.right]
        unwritten = [torch.zeros(right.numel(), dtype=torch.bool)]
        unwritten += [v.untouched[name].reshape(-1) for v in verdicts if not v.right]
        scale = scales[name].reshape(-1) if name in scales else None
        for one, other in combinations(range(len(seen)), 2):
            same = is_mistaken(
                seen[one], seen[other].double(), scale, exercise.tolerance, case
            )
            apart = ~same | (unwritten[one] ^ unwritten[other])
            if bool(apart.any()) and not bool(apart[sorted(at)].any()):
                gap = (seen[one].double() - seen[other].double()).abs()
                gap = gap.nan_to_num(math.inf, math.inf).masked_fill(~apart, -1.0)
                at.add(int(gap.argmax()))
        chosen[name] = torch.tensor(sorted(at))
    return chosen, reference


def _within(
    exercise: Exercise,
    case: Case,
    problem: Problem,
    at: Mapping[str, torch.Tensor],
    reference: Outputs,
) -> dict[str, list[Number]]:
    """Return the tolerance at each place, where an edition is to have no other.

    Raises:
        PrintError: an output is too large for all of it to be kept.
    """
    hidden = importlib.import_module(f"autograder.exercises.{exercise.stem}.hidden")
    if "reference" not in hidden.HIDDEN[exercise.id]:
        return {}
    scales = scales_of(exercise, given(problem))
    kept = {}
    for name, output in problem.outputs.items():
        right = reference[name].reshape(-1)
        if len(at[name]) < right.numel():
            raise PrintError(
                f"{exercise.id}: its reference is left out of a release, and {name} of "
                f"{case.name} has {right.numel()} elements; wanted at most {_WHOLE}"
            )
        magnitude = scales[name].reshape(-1) if name in scales else right.abs()
        kept[name] = _told(
            allowed_error(magnitude, output.dtype, exercise.tolerance, case)
        )
    return kept


def _words(mistake: Mistake) -> dict[str, Any]:
    premises = {"needs": mistake.needs, "lacks": mistake.lacks}
    held = {key: text for key, text in premises.items() if text}
    return {"says": mistake.says, **held, "cases": {}}


def _print(
    exercise: Exercise, verdict: Verdict, at: Mapping[str, torch.Tensor]
) -> dict[str, Any]:
    kept: dict[str, Any] = {
        "wrong": {name: int(bad.sum()) for name, bad in verdict.bad.items()}
    }
    for name, where in at.items():
        put_out = verdict.outputs[name].reshape(-1)[where]
        digits = DIGITS if exercise.tolerance.factor else DIGITS_OF_EXACT
        if put_out.dtype == torch.float64:
            digits = DIGITS_OF_DOUBLES
        values = _told(put_out, digits)
        unwritten = verdict.untouched[name].reshape(-1)[where].tolist()
        kept[name] = [
            UNWRITTEN if not_there else value
            for value, not_there in zip(values, unwritten, strict=True)
        ]
    return kept


def _told(values: torch.Tensor, digits: int = DIGITS) -> list[Number]:
    """Return numbers as JSON has them; what it has none for, by name."""

    def told(value: float | int | bool) -> Number:
        if isinstance(value, float):
            if not math.isfinite(value):
                return str(value)
            value = float(f"{value:.{digits}g}")
        return int(value) if value == int(value) and abs(value) < 1e15 else value

    return [told(value) for value in values.tolist()]


def _doubles(
    exercise: Exercise,
    prints: Prints,
    shown: Sequence[Shown],
    cases: Sequence[Case],
    problems: Sequence[Problem],
) -> set[str]:
    """Return the mistakes that show just as an earlier one does, and say the same.

    Raises:
        PrintError: two show the same, say different things, and have no premise.
    """

    def fits(mistake: Print, one: Shown) -> bool:
        return all(
            mistake.cases.get(number) == {"trouble": came}
            if isinstance(came, str)
            else prints.fits(
                mistake, number, exercise, cases[number], problems[number], came
            )
            for number, came in enumerate(one.cases)
        )

    doubles: set[str] = set()
    for (number, one), (_, other) in combinations(enumerate(shown), 2):
        first, second = one.mistake, other.mistake
        if not fits(prints.mistakes[number], other):
            continue
        if first.says == second.says:
            doubles.add(second.name)
        elif not (first.needs or first.lacks or second.needs or second.lacks):
            raise PrintError(
                f"{exercise.id}: {first.name} and {second.name} put out the same on "
                "every public case: give them one sentence (like), a case that parts "
                "them, or a premise (needs, lacks)"
            )
    return doubles


def _text(
    made: str, places: Sequence[Mapping[str, Any]], kept: Mapping[str, Any]
) -> str:
    """Lay the file out with a line a case, so that a change shows where it is."""

    def line(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    lines = ["{", f' "made_of": {line(made)},', ' "cases": [']
    lines.append(",\n".join(f"  {line(place)}" for place in places))
    lines += [" ],", ' "mistakes": {']
    blocks = []
    for name, one in kept.items():
        words = {key: text for key, text in one.items() if key != "cases"}
        cases = ",\n".join(
            f"    {line(number)}: {line(case)}" for number, case in one["cases"].items()
        )
        block = f'  {line(name)}: {line(words)[:-1]},\n   "cases": {{\n{cases}}}}}'
        blocks.append(block)
    return "\n".join([*lines, ",\n".join(blocks), " }", "}"]) + "\n"
