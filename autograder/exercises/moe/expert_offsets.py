"""Where each expert's rows end: a histogram and its prefix sum, in one block."""

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
    Structure,
    Tolerance,
)
from autograder.exercises.moe.routed import draw_chosen, routed_case
from autograder.ideals import moves

_THREADS = 256


def _problem(case: Case, generator: torch.Generator) -> Problem:
    pairs, experts = case.sizes["pairs"], case.sizes["experts"]
    chosen = draw_chosen(case, generator, pairs, 1).flatten()
    return Problem(
        {"chosen": chosen, "offsets": None, "pairs": pairs, "experts": experts},
        {"offsets": Output((experts,), torch.int32)},
        Launch((1,), (_THREADS,)),
    )


def _reference(arguments: Arguments) -> Outputs:
    chosen = tensor(arguments, "chosen").long()
    counts = torch.bincount(chosen, minlength=int(arguments["experts"]))
    return {"offsets": counts.cumsum(0).int()}


EXPERT_OFFSETS = Exercise(
    id="expert_offsets",
    title="Where each expert's rows end",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="expert_offsets",
    source="solutions/moe/expert_offsets.cu",
    goal="Count in shared memory how many pairs chose each expert, and turn the counts "
    "into running totals: the row at which each expert's rows end.",
    requirements=(
        "One block of 256 threads. `chosen[pair]` is an expert, from 0 to `experts` - "
        "1; there are 1 to 256 experts and any number of pairs, 0 included.",
        "`offsets[e]` is the number of pairs that chose expert e or a lower one. An "
        "expert that nobody chose ends where it begins.",
        "Counts are added in shared memory by atomics, not in global memory.",
        "The sums take a number of steps that grows with the logarithm of `experts`; "
        "no thread goes through all counts.",
    ),
    problem=_problem,
    reference=_reference,
    # A full warp's worth of experts for each warp first: all take part in the sums.
    cases=(
        routed_case(pairs=4096, experts=256),
        routed_case("skewed", pairs=1003, experts=200),
        routed_case("idle", pairs=777, experts=65),
        routed_case("crowded", pairs=600, experts=48),
        routed_case(pairs=255, experts=33),
        routed_case(pairs=257, experts=32),
        routed_case(pairs=300, experts=1),
        routed_case(pairs=1, experts=7),
        routed_case(pairs=0, experts=5),
    ),
    tolerance=Tolerance(factor=0.0),
    hints=(
        "Two halves: first the counts, then their sums. What must shared memory hold "
        "before the first atomicAdd, and who must be done before the sums begin?",
        "After the step of width w, sums[t] holds the counts of the 2 * w experts "
        "up to t, so the step adds what sums[t - w] held before it. Which thread could "
        "have changed it by then?",
        "for (int step = 1; step < experts; step *= 2): int before = t >= step ? "
        "sums[t - step] : 0; __syncthreads(); sums[t] += before; __syncthreads(). At "
        "the end thread t stores sums[t], if t < experts.",
    ),
    onward="By __shfl_up_sync it takes two barriers in all. Which two?",
    counts=(
        *moves(),
        # A tree's strides meet in banks, and a histogram for each warp is set to 0
        # first: 214. One thread that stores a sum after another: 264.
        Count("wavefronts", "shared", "store", ideal=72, times=3.2),
        # That tree: 260. Each thread adding all counts up to its own: 1,152.
        Count("wavefronts", "shared", "load", ideal=129, times=4.0),
    ),
    structure=(
        Structure(
            lacks=("ATOMG", "REDG", "RED.E"),
            message="The values are right, and the machine code adds in global memory "
            "(RED or ATOMG): every pair's addition goes to L2. Count in a __shared__ "
            "array, and store each sum once.",
        ),
    ),
    repeats=("chosen",),
)
