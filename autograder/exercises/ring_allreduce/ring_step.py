"""Warm-up: one step round the ring, in which nobody waits for ever."""

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
)
from autograder.exercises.ring_allreduce.shared import (
    EXACT,
    MESSAGES_ALONE,
    PRELUDE,
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
    return {"out": tensor(arguments, "x").roll(1, 0)}


RING_STEP = Exercise(
    id="ring_step",
    title="One step round the ring",
    kind="warm-up",
    points=10,
    language="python",
    entry="ranks",
    name="ring_step",
    source="solutions/ring_allreduce/step.py",
    goal="Send your tensor to the rank on your right and return what the rank on your "
    "left sent, for any number of ranks.",
    requirements=(
        "`ring_step(x)` is called by every rank with its own `x`, (n,), fp32. It "
        "returns a tensor like it that holds the left neighbour's.",
        "The right neighbour of the last rank is rank 0. A single rank returns a copy "
        "of its own, and sends nothing.",
        "One message a rank. Whatever is begun with `isend` or `irecv` is waited for.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        ranks_case(4, 33),
        ranks_case(3, 7),
        ranks_case(2, 1),
        ranks_case(5, 2),
        ranks_case(2, 0),
        ranks_case(1, 5),
    ),
    tolerance=EXACT,
    hints=(
        "dist.send returns once the receiver has begun to receive. If every rank sends "
        "first, who receives?",
        "dist.isend begins to send and returns a handle at once. Between it and its "
        "wait() there is time to receive.",
        "For n > 1: sending = dist.isend(x, (me + 1) % n), then dist.recv(got, "
        "(me - 1) % n), then sending.wait().",
    ),
    onward="Can it be done with dist.send and dist.recv alone? See the detective.",
    structure=(MESSAGES_ALONE,),
    counts=(
        Count("sent bytes", ideal=4 * 33, times=1),
        Count("messages", ideal=1, times=1),
    ),
    prelude=PRELUDE,
)
