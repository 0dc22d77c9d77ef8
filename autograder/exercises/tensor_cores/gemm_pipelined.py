"""Three stages of asynchronous copies."""

from __future__ import annotations

from autograder.exercise import Exercise
from autograder.exercises.tensor_cores.shared import (
    ASYNCHRONOUS,
    SHARES,
    STAGED_BYTES,
    STAGED_CASES,
    STAGED_COUNTS,
    TOLERANCE,
    problem_with,
    reference,
    timed,
)

GEMM_PIPELINED = Exercise(
    id="gemm_pipelined",
    title="Three stages under way",
    kind="core",
    points=25,
    language="cuda",
    entry="kernel",
    name="gemm_pipelined",
    source="solutions/tensor_cores/pipelined.cu",
    goal="Fetch tiles asynchronously, two ahead of the one that is multiplied.",
    requirements=(
        "Blocks of 128 threads, three stages of 32 KB in dynamic shared memory.",
        "One barrier for each tile of k; no read before the wait, no stage "
        "overwritten while it is read.",
        "Right for every number of tiles: 0, 1, 2 and more.",
        "LDGSTS, LDSM and HMMA in the machine code.",
    ),
    problem=problem_with((128, 128), 128, STAGED_BYTES),
    reference=reference,
    cases=STAGED_CASES,
    tolerance=TOLERANCE,
    hints=(
        "Before the loop: two tiles are sent for, each as a group of its own. In round "
        "t: wait until tile t is here, send for tile t + 2, multiply tile t. Which "
        "stage is free at that moment, and how do you know that all warps left it?",
        "kw::cp_async_wait<1>() returns when all groups but the newest one are here. "
        "So exactly one group must be committed in each round, even when there is "
        "nothing left to fetch. The barrier behind the wait serves twice: it shows "
        "everyone tile t, and nobody is in round t - 1 any more.",
        "for t = 0, 1: fetch if t < steps; commit.  Then for each t: "
        "kw::cp_async_wait<STAGES - 2>(); __syncthreads(); fetch tile t + STAGES - 1 "
        "if there is one; kw::cp_async_commit(); half* ready = stages + t % STAGES * "
        "2 * TILE; kw::multiply_tiles(sum, ready, ready + TILE);",
    ),
    onward="Two stages, or four: which of them still fits two blocks into an SM?",
    counts=STAGED_COUNTS,
    structure=ASYNCHRONOUS,
    speed=timed({"bronze": 0.30, "silver": 0.39, "gold": 0.46}),
    shares=SHARES,
)
