"""Attention in one kernel, a thread a query."""

from __future__ import annotations

from autograder.exercise import Exercise
from autograder.exercises.flash_attention.shared import (
    LDS,
    SHARES,
    TOLERANCE,
    case_of,
    kernel_problem,
    reference,
)
from autograder.ideals import barriers, moves

FLASH_FORWARD = Exercise(
    id="flash_forward",
    title="Attention in one kernel",
    kind="core",
    points=25,
    language="cuda",
    entry="kernel",
    name="flash_forward",
    source="solutions/flash_attention/forward.cu",
    goal="Take a tile of keys and values from shared memory into the running maximum, "
    "weight and sum of each thread's query.",
    requirements=(
        "Blocks of 64 threads, a thread a query; `query` holds the scaled query.",
        "Every byte of k and v is loaded once a block, and nothing is stored but out.",
        "Two barriers a tile; right for every length, and for scores however high or "
        "low: up to 10,000, or all near -20,000.",
    ),
    problem=kernel_problem,
    reference=reference,
    # Whole tiles first, for the counts; the mistakes show in all.
    cases=(
        case_of(128, 64, heads=2),
        case_of(70, 77),
        case_of(33, 17),
        case_of(1, 1),
        case_of(64, 80, "rising"),
        case_of(40, 50, "large"),
        case_of(9, 21, "low"),
    ),
    tolerance=TOLERANCE,
    hints=(
        "It is attention_tile once more, for one query: scores of the tile, new "
        "maximum, mend, add. What must have happened before a thread may read `keys`, "
        "and before `bring` may write there again?",
        "float score[KEYS], higher = top; in a loop over j score[j] = kw::dot(query, "
        "keys[j]), and -INFINITY for keys from kv_len on. Then mend = __expf(top - "
        "higher) for weight and for each sum[d].",
        "Then top = higher. Second loop over j: float p = __expf(score[j] - top); "
        "weight += p; "
        "kw::add_row(sum, p, values[j]). __syncthreads() stands first and last. "
        "`#pragma unroll` above both loops over j keeps score in registers.",
    ),
    onward="Let a thread keep two queries: each key that it reads then serves twice.",
    counts=(
        # A thread has a row of q and of out of its own; two blocks share a head's keys.
        *moves({"k": 2, "v": 2}, asked=True, times=1),
        barriers(8),
    ),
    structure=(LDS,),
    shares=SHARES,
)
