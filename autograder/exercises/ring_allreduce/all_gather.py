"""Core: the second half of the ring, after which each rank holds every part."""

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
        {"part": draw(case, generator, n)},
        {"out": Output((ranks, ranks, n), torch.float32)},
        ranks=ranks,
    )


def _reference(arguments: Arguments) -> Outputs:
    part = tensor(arguments, "part")
    return {"out": part.expand(len(part), *part.shape)}


ALL_GATHER = Exercise(
    id="all_gather",
    title="All-gather",
    kind="core",
    points=15,
    language="python",
    entry="ranks",
    name="all_gather",
    source="solutions/ring_allreduce/gather_rung.py",
    goal="Pass every rank's part round the ring until each rank holds all of them.",
    requirements=(
        "`all_gather(part)` is called by every rank with its own `part`, (n,), fp32. "
        "Each returns `out`, (ranks, n), whose row r is rank r's part.",
        "A rank sends n - 1 messages of one part each, all to its right neighbour.",
        "No message is touched while it is under way, and each is waited for.",
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
    tolerance=EXACT,
    hints=(
        "In the first step a rank can only send its own part. Whose part does it hold "
        "after that step which its right neighbour does not?",
        "In step s rank r gives part (r - s) % n and takes part (r - 1 - s) % n.",
        "A row is a view: dist.recv(parts[take], (me - 1) % n) receives in its place. "
        "isend parts[give] before it, and wait after it.",
    ),
    onward="Nothing is added here. Could a rank send all that it must at once?",
    structure=(MESSAGES_ALONE,),
    counts=(
        Count("sent bytes", ideal=3 * 4 * 9, times=1),
        Count("messages", ideal=3, times=1),
        Count("receivers", ideal=1, times=1),
    ),
    prelude=PRELUDE,
)
