"""Core: the first half of the ring, after which each rank holds one part's sum."""

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
    Tolerance,
)
from autograder.exercises.ring_allreduce.shared import (
    LEFT_ALONE,
    MESSAGES_ALONE,
    PRELUDE,
    draw,
    ranks_case,
)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    ranks, n = case.sizes["ranks"], case.sizes["n"]
    return Problem(
        {"parts": draw(case, generator, ranks, n)},
        {"out": Output((ranks, n), torch.float32)},
        ranks=ranks,
    )


def _reference(arguments: Arguments) -> Outputs:
    return {"out": tensor(arguments, "parts").double().sum(0)}


def _tolerated(arguments: Arguments) -> Outputs:
    return {"out": tensor(arguments, "parts").double().abs().sum(0)}


REDUCE_SCATTER = Exercise(
    id="reduce_scatter",
    title="Reduce-scatter",
    kind="core",
    points=15,
    language="python",
    entry="ranks",
    name="reduce_scatter",
    source="solutions/ring_allreduce/scatter_rung.py",
    goal="Send partial sums round the ring until rank r holds the sum of everybody's "
    "part r.",
    requirements=(
        "`reduce_scatter(parts)` is called by every rank with its own `parts`, "
        "(ranks, n), fp32. Rank r returns `out`, (n,): the sum of row r over all "
        "ranks.",
        "A rank sends n - 1 messages of one row each, all to its right neighbour.",
        "`parts` stays as it is: the stub works on a copy. No message is touched while "
        "it is under way, and each is waited for.",
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
    # As SUMS in shared.py.
    tolerance=Tolerance(1.0, length=lambda case: case.sizes["ranks"], scale=_tolerated),
    hints=(
        "Follow part 2 among four ranks. It is to end on rank 2, so rank 3 sends it "
        "first. Which part does rank r send first?",
        "In step s rank r gives part (r - 1 - s) % n and takes part (r - 2 - s) % n, "
        "and what it takes is what it gives in the next step.",
        "Each step: got = torch.empty_like(parts[take]); isend parts[give] to the "
        "right; recv got from the left; wait; parts[take] += got.",
    ),
    onward="How many bytes would the rank in the middle receive if all sent to it?",
    structure=(MESSAGES_ALONE,),
    counts=(
        Count("sent bytes", ideal=3 * 4 * 9, times=1),
        Count("messages", ideal=3, times=1),
        Count("receivers", ideal=1, times=1),
    ),
    prelude=PRELUDE + LEFT_ALONE,
)
