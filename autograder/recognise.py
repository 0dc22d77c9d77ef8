"""Which known mistake explains a wrong answer: the one that fits all that was seen."""

from __future__ import annotations

import time

from autograder.exercise import Case, NearMiss, Problem
from autograder.oracle import draw, right_nevertheless
from autograder.run import Run
from autograder.trial import Tried
from autograder.workers import Worker, WorkerEnded

# To see whether a known mistake explains further cases they are tried for so long; and
# to tell several apart, on a machine that is busy.
EXPLORE_S, TELL_APART_S = 3.0, 12.0


def known_mistake(
    run: Run, worker: Worker, first: Tried, cases: list[tuple[Case, str]], number: int
) -> NearMiss | None:
    """Find the known mistake that explains every failure seen.

    On one small case several mistakes may look the same; other cases tell them apart.
    One that fits the first failure and not the next is no explanation, and those that
    are right where the answer was come before the others.
    """
    assert first.verdict is not None
    fitting = list(first.verdict.near_misses)
    for case, purpose in cases[:number] if len(fitting) > 1 else ():
        problem = draw(run.exercise, case, run.seed, purpose)
        fitting = _nearest(run, case, problem, fitting)
    began = time.monotonic()
    for case, purpose in cases[number + 1 :] if fitting else ():
        spent = time.monotonic() - began
        if spent > TELL_APART_S and len(fitting) > 1:
            return None  # not told apart: a wrong diagnosis is worse than none
        if spent > EXPLORE_S and len(fitting) < 2:
            break
        try:
            tried = run.try_case(worker, case, purpose, fitting)
        except WorkerEnded:
            break
        if tried.trouble or tried.verdict is None:
            break
        if tried.right:
            assert tried.problem is not None
            fitting = _nearest(run, case, tried.problem, fitting)
        else:
            fitting = list(tried.verdict.near_misses)
        if not fitting:
            break
    return fitting[0] if fitting else None


def _nearest(
    run: Run, case: Case, problem: Problem, fitting: list[NearMiss]
) -> list[NearMiss]:
    """Keep the mistakes that are right on a case where the answer was.

    If none is, all stay: a neighbour of what was made, and nothing is nearer.
    """
    if len(fitting) < 2:
        return fitting
    return right_nevertheless(run.exercise, case, problem, fitting) or fitting
