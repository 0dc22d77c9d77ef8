"""Many answers to one exercise, graded side by side: mutants, known mistakes.

Half of what a small CUDA answer takes is its two compilations, and of those 0.06 of
0.09 s is the compiler's start. Many answers in one text would save that, for a grader
that no longer goes the way of a learner's answer; warm workers side by side do not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from autograder.exercise import Exercise
from autograder.exercises import all_exercises
from autograder.judge.judge import Judge
from autograder.judge.pool import Idle, started
from autograder.judge.results import Result
from autograder.judge.trial import Deadlines
from autograder.regions import cell_source
from autograder.submission.submitted import Cells
from autograder.supervisor.workers import warm_toolchain

SEED = 20_261_121
# What hangs costs a second or two; each of the course's answers takes a part of this.
SHORT = Deadlines(prepare=20.0, case=3.0, kernel=1.5, all=20.0)


@contextmanager
def judges(count: int = 0, deadlines: Deadlines = SHORT) -> Iterator[Sequence[Judge]]:
    """Have several judges of one seed ready, one for each core unless told.

    They grade on the CPU, as each machine can, and try the hidden cases too.
    """
    warm_toolchain("cpu")
    wanted = range(count or len(os.sched_getaffinity(0)))
    with started(
        Judge(seed=SEED, device="cpu", deadlines=deadlines) for _ in wanted
    ) as made:
        yield made


def grade_many(
    exercise: Exercise, cells: Sequence[str], judges: Sequence[Judge]
) -> Iterator[Result]:
    """Grade answers to one exercise; give the results in the answers' order.

    Args:
        exercise: what is asked; what it needs is taken from the course's answers.
        cells: whole cells, heading included.
        judges: each grades one answer at a time.
    """
    every = all_exercises()
    needed = {name: cell_source(every[name], solved=True) for name in exercise.needs}
    idle = Idle(judges)

    def grade(cell: str) -> Result:
        with idle.borrowed() as judge:
            return judge.grade(exercise, Cells({**needed, exercise.id: cell}))

    with ThreadPoolExecutor(len(judges)) as pool:
        yield from pool.map(grade, cells)
