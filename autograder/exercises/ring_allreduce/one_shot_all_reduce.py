"""Core: an all-reduce in one kernel, in which ranks write into each other's memory."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Launch,
    Output,
    Outputs,
    Problem,
)
from autograder.exercises.ring_allreduce.shared import EXACT, draw, ranks_case

_THREADS = 128
_RANKS, _N = 4, 512
# Of the first case, by all ranks: x once, and each rank's own box once.
_LOADED = 4 * _N * (_RANKS + _RANKS * _RANKS)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    ranks, n = case.sizes["ranks"], case.sizes["n"]
    call = int(torch.randint(100, 1 << 20, (), generator=generator))
    # What earlier calls left, some of them longer ago.
    before = call - 1 - torch.randperm(ranks * ranks, generator=generator)
    return Problem(
        {
            "x": draw(case, generator, n),
            "out": None,
            "boxes": None,
            "signs": before.view(ranks, ranks).int(),
            "n": n,
            "rank": torch.arange(ranks, dtype=torch.int32),
            "ranks": ranks,
            "call": call,
        },
        {
            "out": Output((ranks, n), torch.float32),
            "boxes": Output((ranks, ranks, n), torch.float32),
            "signs": Output((ranks, ranks), torch.int32),
        },
        Launch((1,), (_THREADS,)),
        ranks=ranks,
        replicated=("boxes", "signs"),
    )


def _reference(arguments: Arguments) -> Outputs:
    x, signs = tensor(arguments, "x"), tensor(arguments, "signs")
    # Rounded after each addition, in the order of ranks: the bits that all must get.
    total = x[0].clone()
    for one in x[1:]:
        total += one
    return {
        "out": total.expand(x.shape),
        "boxes": x.expand(len(x), *x.shape),
        "signs": torch.full_like(signs, int(arguments["call"])),
    }


ONE_SHOT_ALL_REDUCE = Exercise(
    id="one_shot_all_reduce",
    title="All-reduce in one shot",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="one_shot_all_reduce",
    source="solutions/ring_allreduce/one_shot_rung.cu",
    goal="Write your message into every rank's memory, say that it is there, wait for "
    "everybody else's, and add all of them up.",
    requirements=(
        "Every rank launches the kernel with its own `x`, `out` and `rank`: one block "
        "of 128 threads, all ranks at the same time. At most 128 ranks; any n, 0 "
        "included.",
        "`boxes[r]` points to rank r's memory, (ranks, n): row s receives rank s's "
        "`x`. A rank fills its row in every box, its own included.",
        "`signs[r][s]` is set to `call` by rank s once its row is in `boxes[r]`. "
        "Before that it holds the number of an earlier call, which is smaller. Signs "
        "are set and looked at by atomics of system scope, with "
        "`__threadfence_system()` on both sides. Wait while a sign is smaller than "
        "`call`: a rank may be a call ahead.",
        "`out[i]` is the sum over ranks in their order, 0 first: all ranks get the "
        "same bits.",
        "Each rank reads its `x` once and its own box once, 32 neighbours at a time.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        ranks_case(_RANKS, _N),
        ranks_case(3, 301),
        ranks_case(5, 33),
        ranks_case(2, 129),
        ranks_case(3, 1),
        ranks_case(2, 0),
        ranks_case(1, 130),
    ),
    tolerance=EXACT,
    hints=(
        "Four parts with something between each two: write, tell, wait, add. What must "
        "be true of all threads' writes before one thread tells of them?",
        "Thread p can tell rank p and wait for rank p: if (threadIdx.x < ranks). "
        "Before it __threadfence_system() and __syncthreads(), by all threads; and "
        "both again behind it.",
        "Tell: atomicExch_system(&signs[p][rank], call). Wait: while "
        "(atomicAdd_system(&signs[rank][p], 0) < call) {}. Then sum "
        "boxes[rank][r * n + i] over r, from 0 on.",
    ),
    onward="The next call may come before a slow rank has read its box. Why are two "
    "boxes, taken by turns, enough?",
    counts=(
        Count("moved", "global", "load", ideal=_LOADED),
        Count("requests", "global", "load", ideal=_LOADED / 128),
        Count("moved", "global", "store", ideal=_LOADED),
        Count("requests", "global", "store", ideal=_LOADED / 128),
        Count("writers", "global", "store", ideal=1, times=1),
    ),
)
