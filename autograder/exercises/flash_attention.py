"""Chapter 9: attention without its matrix of scores, from PyTorch to tensor cores."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.exercise import (
    Case,
    Exercise,
    Launch,
    Problem,
    Structure,
)
from autograder.exercises._flash_attention import (
    QUERIES,
    STEM,
    TOLERANCE,
    case_of,
    hidden_shapes,
    kernel_problem,
    reference,
)
from autograder.exercises._flash_attention_causal import causal_mistakes
from autograder.exercises._flash_attention_merge import WRONG_RESCALE
from autograder.exercises._flash_attention_mistakes import (
    end_mistakes,
    loop_mistakes,
    tail_mistakes,
)
from autograder.exercises._flash_attention_reference import ATTENTION_REFERENCE
from autograder.exercises._flash_attention_tile import ATTENTION_TILE
from autograder.exercises._flash_attention_warps import FLASH_WMMA
from autograder.exercises._flash_attention_weights import WEIGH_ROWS
from autograder.totals import barriers, moves

SHARES = {"correct": 0.6, "counts": 0.4, "speed": 0.0}

# --- flash_forward ----------------------------------------------------------------

KEYS = 16


def _forward_problem(case: Case, generator: torch.Generator) -> Problem:
    arguments, outputs = kernel_problem(case, generator)
    grid = (-(-case.sizes["q_len"] // QUERIES), case.sizes["heads"])
    return Problem(arguments, outputs, Launch(grid, (QUERIES,)))


# Whole tiles first, for the counts; the mistakes show in all.
_FORWARD_CASES = (
    case_of(128, 64, heads=2),
    case_of(70, 77),
    case_of(33, 17),
    case_of(1, 1),
    case_of(64, 80, "rising"),
    case_of(40, 50, "large"),
    case_of(9, 21, "low"),
)
_LDG = Structure(
    holds=("LDS",),
    message="The values are right, and the machine code reads no shared memory (LDS): "
    "every query reads every key from global memory itself.",
)

FLASH_FORWARD = Exercise(
    id="flash_forward",
    stem=STEM,
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
    problem=_forward_problem,
    reference=reference,
    cases=_FORWARD_CASES,
    hidden=hidden_shapes,
    tolerance=TOLERANCE,
    near_misses=(
        *loop_mistakes(KEYS, scaled=False),
        *tail_mistakes(KEYS),
        *end_mistakes(KEYS),
    ),
    hints=(
        "It is attention_tile once more, for one query: scores of the tile, new "
        "maximum, mend, add. What must have happened before a thread may read `keys`, "
        "and before `bring` may write there again?",
        "float score[KEYS], higher = top; in a loop over j score[j] = kw::dot(query, "
        "keys[j]), and -INFINITY for keys from kv_len on. Then mend = __expf(top - "
        "higher) for weight and for each sum[d].",
        "Second loop over j: float p = __expf(score[j] - top); weight += p; "
        "kw::add_row(sum, p, values[j]). __syncthreads() stands first and last. "
        "`#pragma unroll` above both loops over j keeps score in registers.",
    ),
    onward="Let a thread keep two queries: each key that it reads then serves twice.",
    counts=(
        # A thread has a row of q and of out of its own; two blocks share a head's keys.
        *moves({"k": 2, "v": 2}, asked=True, times=1),
        barriers(8),
    ),
    structure=(_LDG,),
    shares=SHARES,
)

# --- flash_causal -----------------------------------------------------------------


def _causal_problem(case: Case, generator: torch.Generator) -> Problem:
    return _forward_problem(case, generator)


def causal_case(
    q_len: int, kv_len: int, regime: str = "distinct", heads: int = 1, more: int = 0
) -> Case:
    """Return a case whose last query sees ``more`` keys than there are, or fewer."""
    return case_of(q_len, kv_len, regime, heads=heads, offset=kv_len - q_len + more)


def _causal_hidden(generator: torch.Generator) -> Iterator[Case]:
    for case in hidden_shapes(generator):
        q_len, kv_len = case.sizes["q_len"], case.sizes["kv_len"]
        more = int(torch.randint(-8, 9, (), generator=generator))
        yield causal_case(q_len, kv_len, case.regime, case.sizes["heads"], more)


# Of 160 queries the block b brings the keys before 64 (b + 1), and the last, which is
# not full, those before 160 of the 176.

FLASH_CAUSAL = Exercise(
    id="flash_causal",
    stem=STEM,
    title="Causal, and no tile too many",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="flash_causal",
    source="solutions/flash_attention/causal.cu",
    goal="Let query i see the keys up to i + offset only, and do not touch tiles that "
    "no query of the block sees.",
    requirements=(
        "Scores are hidden before the maximum is taken.",
        "A tile that no query of the block sees is neither loaded nor computed.",
        "A query that sees no key gets zeros, not NaN: offset may be negative. It may "
        "reach beyond the last key, too.",
    ),
    problem=_causal_problem,
    reference=reference,
    cases=(
        causal_case(160, 176, more=-16),
        causal_case(70, 77),
        causal_case(100, 30),
        causal_case(1, 1),
        causal_case(33, 70, heads=2, more=8),
        causal_case(64, 80, "rising"),
        causal_case(80, 80, "large"),
        causal_case(9, 21, "low", more=3),
    ),
    hidden=_causal_hidden,
    tolerance=TOLERANCE,
    near_misses=causal_mistakes(KEYS),
    hints=(
        "Which query of the block sees the most keys? No tile behind its last key "
        "needs to be brought.",
        "int last = min(first + QUERIES, q_len) - 1; stop = min(kv_len, last + offset "
        "+ 1). In the loop over j a score is -INFINITY where start + j >= kv_len or "
        "start + j > row + offset, and higher becomes the maximum.",
        "score[j] = kw::dot(query, keys[j]), hidden or not; higher = fmaxf(higher, "
        "score[j]). Then base = higher == -INFINITY ? 0.0f : higher. At the end: if "
        "(weight > 0.0f) share = 1.0f / weight.",
    ),
    onward="Only the last tiles of a block need the comparison: split the loop in two.",
    counts=(
        # The blocks see 64, 128 and 160 of the 176 keys.
        moves({"k": 352 / 176, "v": 352 / 176}, asked=True, times=1)
    ),
    structure=(_LDG,),
    shares=SHARES,
)

EXERCISES = (
    ATTENTION_REFERENCE,
    ATTENTION_TILE,
    FLASH_FORWARD,
    FLASH_CAUSAL,
    WEIGH_ROWS,
    FLASH_WMMA,
    WRONG_RESCALE,
)
