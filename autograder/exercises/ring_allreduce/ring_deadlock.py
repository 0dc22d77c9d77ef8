"""The detective: blocking sends all round, and what the cure brings to light."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Output,
    Outputs,
    Problem,
    Structure,
)
from autograder.exercises.ring_allreduce.shared import (
    MESSAGES_ALONE,
    PRELUDE,
    SUMS,
    draw,
    ranks_case,
)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    ranks, n = case.sizes["ranks"], case.sizes["n"]
    return Problem(
        {"x": draw(case, generator, n)},
        {"out": Output((ranks, n), torch.float32)},
        ranks=ranks,
    )


def _reference(arguments: Arguments) -> Outputs:
    x = tensor(arguments, "x")
    return {"out": x.double().sum(0).expand(x.shape)}


RING_DEADLOCK = Exercise(
    id="ring_deadlock",
    title="Everybody sends, nobody receives",
    kind="detective",
    points=20,
    language="python",
    entry="ranks",
    name="ring_deadlock",
    source="autograder/exercises/ring_allreduce/ring_deadlock_answer.py",
    goal="Mend the ring that hangs, with blocking calls alone; and mend what only "
    "shows once it no longer hangs.",
    requirements=(
        "`ring_deadlock(x)` is called by every rank with its own `x`, (n,), fp32. Each "
        "returns the sum over all ranks, (n,).",
        "Whole tensors go round: n - 1 messages a rank, to its right neighbour.",
        "Only `dist.send` and `dist.recv`: the order of calls is what is to be mended.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        ranks_case(4, 9),
        ranks_case(3, 5),
        ranks_case(5, 2),
        ranks_case(2, 3),
        ranks_case(3, 0),
        ranks_case(1, 4),
    ),
    tolerance=SUMS,
    hints=(
        "check() says who waits for whom. Which single rank would have to do something "
        "else for the others to go on?",
        "Let ranks of odd number receive first. Then look at what they send: where "
        "does `travels` lie after the first round?",
        "if me % 2 == 0: send, recv; else: recv, send. Make `got` anew in each round, "
        "so that receiving does not overwrite what is still to be sent.",
    ),
    onward="With three ranks, 0 and 2 are neighbours and both send first. Why does it "
    "go on all the same?",
    structure=(
        MESSAGES_ALONE,
        Structure(
            lacks=("dist.isend", "dist.irecv", "dist.batch_isend_irecv"),
            message="Blocking calls alone: mend the order of dist.send and dist.recv.",
        ),
    ),
    counts=(
        Count("sent bytes", ideal=3 * 4 * 9, times=1),
        Count("messages", ideal=3, times=1),
        Count("receivers", ideal=1, times=1),
    ),
    prelude=PRELUDE,
)
