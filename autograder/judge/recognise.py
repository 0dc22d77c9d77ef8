"""Which known mistake explains a wrong answer: the one that fits all that was seen."""

from __future__ import annotations

import time

from autograder.exercise import Case
from autograder.judge.prints import Print, Prints, prints_of
from autograder.judge.run import Run
from autograder.judge.trial import Tried
from autograder.languages import code_alone
from autograder.supervisor.workers import Worker, WorkerEnded

# To see whether a known mistake explains further cases they are tried for so long; and
# to tell several apart, on a machine that is busy.
EXPLORE_S, TELL_APART_S = 3.0, 12.0

Cases = list[tuple[Case, str]]


def known_mistake(
    run: Run, worker: Worker, first: Tried, cases: Cases, number: int
) -> tuple[str, str] | None:
    """Find the known mistake that explains every case, those that were right too.

    Args:
        run: what is graded.
        worker: holds the answer.
        first: what came of the first case that failed.
        cases: all cases that are tried, each with its purpose.
        number: of the first that failed.

    Returns:
        Its name and its sentence; ``None`` where none fits or several do: a wrong
        diagnosis is worse than none.
    """
    prints = prints_of(run.exercise)
    # Of the hidden cases nothing is kept.
    public = [pair for pair in cases if pair[1].startswith("public")]
    if prints is None or number >= len(public):
        return None
    code = code_alone(run.cells[-1].source, run.exercise.language)
    fitting = _printed_mistakes(run, worker, first, public, number, prints)
    said = next((one for one in fitting if one.may_be_said_of(code)), None)
    return (said.name, said.says) if said else None


def _printed_mistakes(
    run: Run, worker: Worker, first: Tried, cases: Cases, number: int, prints: Prints
) -> list[Print]:
    """Return the mistakes whose prints agree with every case that could be tried."""

    def kept(fitting: list[Print], index: int, tried: Tried) -> list[Print]:
        if tried.verdict is None or tried.problem is None:
            trouble = {"trouble": tried.kind}
            return [one for one in fitting if one.cases.get(index) == trouble]
        told = (index, run.exercise, cases[index][0], tried.problem)
        if not prints.hold(*told):
            return []
        return [one for one in fitting if prints.fits(one, *told, tried.verdict)]

    fitting = [
        one for one in prints.mistakes if not any(n in one.cases for n in range(number))
    ]
    fitting = kept(fitting, number, first)
    began = time.monotonic()
    for index in range(number + 1, len(cases)):
        spent = time.monotonic() - began
        if spent > TELL_APART_S and len({one.says for one in fitting}) > 1:
            return []
        if not fitting or (spent > EXPLORE_S and len(fitting) < 2):
            break
        try:
            tried = run.try_case(worker, *cases[index])
        except WorkerEnded:
            return []
        fitting = kept(fitting, index, tried)
    return fitting
