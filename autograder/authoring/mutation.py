"""``make mutants``: whether every generic mutant is rejected or explained."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from autograder.authoring.grade_many import grade_many, judges
from autograder.authoring.mutants import Mutant, equivalent, mutants
from autograder.exercise import Exercise
from autograder.judge.judge import Judge
from autograder.judge.results import Result
from autograder.judge.trial import Deadlines
from autograder.regions import ROOT, cell_source

Fate = Literal["rejected", "too slow", "no program", "explained", "survives", "stale"]


class MutationError(Exception):
    """The mutants cannot be judged here."""


@dataclass(frozen=True)
class Judged:
    """A mutant and what came of it.

    Args:
        mutant: which.
        fate: ``no program`` does not compile, and tells nothing of the grader;
            ``stale`` is said to be right and is rejected after all.
        words: what the grader said.
    """

    mutant: Mutant
    fate: Fate
    words: str


def drawn(exercises: Sequence[Exercise], sample: int = 0) -> list[Mutant]:
    """Return the mutants of some exercises: all, or a sample drawn by the commit."""
    every = [mutant for exercise in exercises for mutant in mutants(exercise)]
    if not 0 < sample < len(every):
        return every
    asked = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True).stdout
    chosen = random.Random(commit.strip()).sample(range(len(every)), sample)
    return [every[i] for i in sorted(chosen)]


def judge_mutants(
    chosen: Sequence[Mutant], judges: Sequence[Judge]
) -> Iterator[Judged]:
    """Grade mutants in their order, those of one exercise side by side.

    Raises:
        MutationError: an answer itself does not earn its points on this machine, or
            the grader failed.
        MistakeError: what an exercise's file says of its mutants is not so.
    """
    for _, group in groupby(chosen, key=_exercise_id):
        yield from _judge_those_of_one(list(group), judges)


def _exercise_id(mutant: Mutant) -> str:
    return mutant.exercise.id


def _judge_those_of_one(
    chosen: Sequence[Mutant], judges: Sequence[Judge]
) -> Iterator[Judged]:
    exercise = chosen[0].exercise
    reasons = equivalent(exercise) or {}
    (answer,) = grade_many(exercise, [cell_source(exercise, solved=True)], judges[:1])
    if not _is_full(answer):
        raise MutationError(
            f"{exercise.id}: the course's own answer does not earn its points here, so "
            f"its mutants tell nothing: {answer.message}"
        )
    results = grade_many(exercise, [mutant.cell for mutant in chosen], judges)
    for mutant, result in zip(chosen, results, strict=True):
        known = mutant.name in reasons
        if known and not _is_full(result):
            result = _patiently(exercise, mutant, judges[0].seed)
        yield Judged(mutant, _fate(result, known=known), result.message)


def _patiently(exercise: Exercise, mutant: Mutant, seed: int) -> Result:
    """Grade a mutant that should be right once more, with a learner's deadlines."""
    with Judge(seed=seed, device="cpu", deadlines=Deadlines()) as judge:
        return next(grade_many(exercise, [mutant.cell], [judge]))


def _is_full(result: Result) -> bool:
    return result.passed and 0 < result.possible <= result.earned


def _fate(result: Result, *, known: bool) -> Fate:
    if result.status == "infrastructure error":
        raise MutationError(f"{result.exercise}: {result.message}")
    if _is_full(result):
        return "explained" if known else "survives"
    if known:
        return "stale"
    compiles = result.gate("compiles")
    if compiles is not None and compiles.status == "failed":
        return "no program"
    return "too slow" if result.status == "timeout" else "rejected"


def run_mutants(exercises: Sequence[Exercise], *, sample: int, jobs: int) -> int:
    """Judge the mutants of some exercises, print the table; 1 if one is unexplained."""
    chosen = drawn(exercises, sample)
    done: list[Judged] = []
    with judges(jobs) as ready:
        each = judge_mutants(chosen, ready)
        for name, group in groupby(each, key=lambda one: one.mutant.exercise.id):
            first = len(done)
            for judged in group:
                done.append(judged)
                _progress(done, len(chosen))
            if sys.stdout.isatty():
                print(end="\r\x1b[2K")
            print(_row(name, done[first:]), flush=True)
    print("\n".join(report(done)))
    return int(any(one.fate in ("survives", "stale") for one in done))


def _progress(done: Sequence[Judged], total: int) -> None:
    if sys.stdout.isatty():
        mutant = done[-1].mutant
        words = f"[{len(done)}/{total}] {mutant.exercise.id}: {mutant.name}"
        print(f"\r\x1b[2K{words[:79]}", end="", flush=True)


def report(done: Sequence[Judged]) -> Iterator[str]:
    """Give the table by chapter, then what is to be mended, line by line."""
    yield f"\n{'':26}{'mutants':>8}{'no program':>12}{'rejected':>10}" + (
        f"{'too slow':>10}{'explained':>11}{'survive':>9}{'share':>8}"
    )
    for stem, group in groupby(done, key=lambda one: one.mutant.exercise.stem):
        yield _row(stem, list(group))
    yield _row("all", done)
    yield from _listed(done, "survives", _SURVIVES)
    yield from _listed(done, "stale", _STALE)


_SURVIVES = (
    "These earn full points. Add the case or the rule that rejects them, or paste the "
    "line under [equivalent] and say why they are right:"
)
_STALE = "These stand under [equivalent] and are rejected: take them out, or see why:"


def _listed(done: Sequence[Judged], fate: Fate, heading: str) -> Iterator[str]:
    found = [one for one in done if one.fate == fate]
    if found:
        yield f"\n{heading}"
    for one in found:
        mutant = one.mutant
        yield f"\n{mutant.exercise.id}, line {mutant.line}, {mutant.kind}"
        if fate == "survives":
            # A string of JSON is one of TOML.
            name = json.dumps(mutant.name, ensure_ascii=False)
            yield f'{name} = "why it is right"'
        else:
            yield f"    {mutant.name}"
            yield f"    {one.words}"


def _row(name: str, done: Sequence[Judged]) -> str:
    """Count what came of some mutants; the share is of those that are programs."""
    count = Counter(one.fate for one in done)
    programs = len(done) - count["no program"]
    good = programs - count["survives"] - count["stale"]
    share = f"{100 * good / programs:.1f}%" if programs else "–"
    return (
        f"{name:26}{len(done):8}{count['no program']:12}{count['rejected']:10}"
        f"{count['too slow']:10}{count['explained']:11}{count['survives']:9}{share:>8}"
    )
