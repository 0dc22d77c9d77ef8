"""Ladder: the whole all-reduce, in pieces of which several are under way at once."""

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
    LEFT_ALONE,
    MESSAGES_ALONE,
    PRELUDE,
    SUMS,
    draw,
    ranks_case,
)

_RANKS, _N, _PIECES = 4, 96, 4


def _problem(case: Case, generator: torch.Generator) -> Problem:
    ranks, n = case.sizes["ranks"], case.sizes["n"]
    return Problem(
        {"x": draw(case, generator, n), "pieces": case.sizes["pieces"]},
        {"out": Output((ranks, n), torch.float32)},
        ranks=ranks,
    )


def _reference(arguments: Arguments) -> Outputs:
    x = tensor(arguments, "x")
    return {"out": x.double().sum(0).expand(x.shape)}


RING_ALL_REDUCE = Exercise(
    id="ring_all_reduce",
    title="Ring all-reduce in pieces",
    kind="ladder",
    points=25,
    language="python",
    entry="ranks",
    name="ring_all_reduce",
    source="solutions/ring_allreduce/ring_rung.py",
    goal="Return the sum of all ranks' tensors on every rank, with the fewest bytes "
    "that it takes and several messages under way at once.",
    requirements=(
        "`ring_all_reduce(x, pieces)` is called by every rank with its own `x`, (n,), "
        "fp32. Each returns the sum over all ranks, (n,); `x` stays as it is.",
        "n is any length: 0, fewer than ranks, or not divisible by them. "
        "`tensor_split(ranks)` gives chunks that differ by one element at most.",
        "Each rank sends 2 (ranks - 1) / ranks of its tensor, in all.",
        "A chunk travels as `pieces` messages, and in each step at least that many "
        "sends and receives are under way at once.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        ranks_case(_RANKS, _N, _PIECES),
        ranks_case(3, 31, 2),
        ranks_case(5, 17, 3),
        ranks_case(2, 9),
        ranks_case(4, 3, 2),
        ranks_case(3, 1),
        ranks_case(2, 0),
        ranks_case(1, 6, 2),
    ),
    tolerance=SUMS,
    hints=(
        "Take reduce_scatter's loop and all_gather's loop, on chunks of one tensor. "
        "Number the chunks so that what a rank has summed last is what it sends next.",
        "In step s, of 2 (n - 1), give chunk (me - s) % n and take chunk "
        "(me - s - 1) % n. In the first n - 1 steps what comes is added, later it is "
        "copied.",
        "Begin all irecv and all isend of a step, one for each piece of "
        "tensor_split(pieces). Then wait for one receive after another, and add each "
        "piece while the others travel. At the end wait for the sends.",
    ),
    onward="Does a piece have to wait for its whole step? Send it on as soon as it is "
    "added.",
    structure=(MESSAGES_ALONE,),
    counts=(
        Count("sent bytes", ideal=2 * (_RANKS - 1) * 4 * _N // _RANKS, times=1),
        Count("messages at once", ideal=_PIECES, times=None, at_least=_PIECES),
    ),
    prelude=PRELUDE + LEFT_ALONE,
)
