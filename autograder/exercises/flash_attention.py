"""Chapter 9: attention without its matrix of scores, from PyTorch to tensor cores."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Launch,
    NearMiss,
    Outputs,
    Problem,
    Structure,
)
from autograder.exercises._flash_attention import (
    HEAD_DIM,
    QUERIES,
    STEM,
    TOLERANCE,
    Hidden,
    Loop,
    case_of,
    hidden_shapes,
    kernel_problem,
    loop_mistakes,
    one_key_too_many,
    reference,
    tail_mistake,
)
from autograder.exercises._flash_attention_torch import (
    ATTENTION_REFERENCE,
    ATTENTION_TILE,
)
from autograder.exercises._flash_attention_warps import FLASH_WMMA, WRONG_RESCALE
from autograder.exercises._flash_attention_weights import WEIGH_ROWS

SHARES = {"correct": 0.6, "counts": 0.4, "speed": 0.0}

# --- flash_forward ----------------------------------------------------------------

KEYS = 16
_ROW = 4 * HEAD_DIM  # bytes


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
        "Two barriers a tile; right for every length and scores up to 10,000.",
    ),
    problem=_forward_problem,
    reference=reference,
    cases=_FORWARD_CASES,
    hidden=hidden_shapes,
    tolerance=TOLERANCE,
    near_misses=(
        *loop_mistakes(KEYS, scaled=False),
        tail_mistake(KEYS),
        one_key_too_many(KEYS),
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
        # Queries once; keys and values once a block of 64 queries.
        Count(
            "bytes",
            "global",
            "load",
            at_most=2 * (128 + 2 * 2 * 64) * _ROW,
            ideal=2 * (128 + 2 * 2 * 64) * _ROW,
        ),
        # Nothing but the output: memory and traffic are O(N).
        Count("bytes", "global", "store", at_most=2 * 128 * _ROW, ideal=2 * 128 * _ROW),
        Count("barriers", "shared", "store", at_most=8, ideal=8),
    ),
    structure=(_LDG,),
    shares=SHARES,
)

# --- flash_causal -----------------------------------------------------------------


def _causal_problem(case: Case, generator: torch.Generator) -> Problem:
    return _forward_problem(case, generator)


def causal_case(
    q_len: int, kv_len: int, regime: str = "distinct", heads: int = 1
) -> Case:
    """Return a case whose last query sees the last key."""
    return case_of(q_len, kv_len, regime, heads=heads, offset=kv_len - q_len)


def _causal_hidden(generator: torch.Generator) -> Iterator[Case]:
    for case in hidden_shapes(generator):
        q_len, kv_len = case.sizes["q_len"], case.sizes["kv_len"]
        yield causal_case(q_len, kv_len, case.regime, case.sizes["heads"])


def _hides(name: str, hides: Hidden, message: str) -> NearMiss:
    return NearMiss(name, Loop(KEYS, hides=hides), message)


def _first_row_stop(i: torch.Tensor, j: torch.Tensor, offset: int) -> torch.Tensor:
    first = i // QUERIES * QUERIES
    stop = -(-(first + offset + 1).clamp(min=0) // KEYS) * KEYS
    return (j > i + offset) | (j >= stop)


def _stop(i: torch.Tensor, offset: int) -> torch.Tensor:
    """Return where the last tile ends that query i's block brings."""
    last = (i // QUERIES * QUERIES + QUERIES).clamp(max=len(i)) - 1
    return -(-(last + offset + 1).clamp(min=0) // KEYS) * KEYS


def _zeros(arguments: Arguments) -> Outputs:
    return {"out": torch.zeros_like(tensor(arguments, "q"))}


_IN_BLOCK = (
    "In all blocks but the first other keys are seen than should be: the query is "
    "`row`, which counts from the first of the head, not threadIdx.x."
)
_LATE = (
    "Hidden scores take part in the maximum: where one of them is far above all that "
    "the query sees, every weight becomes 0. Hide first, then take the maximum."
)
# Of 192 queries the block b brings the keys before 64 (b + 1): 64 + 128 + 192 rows.
_SKIPPED = (192 + 2 * (64 + 128 + 192)) * _ROW

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
        "A query that sees no key gets zeros, not NaN: offset may be negative.",
    ),
    problem=_causal_problem,
    reference=reference,
    cases=(
        causal_case(192, 192),
        causal_case(70, 77),
        causal_case(100, 30),
        causal_case(1, 1),
        causal_case(33, 70, heads=2),
        causal_case(64, 80, "rising"),
        causal_case(80, 80, "large"),
    ),
    hidden=_causal_hidden,
    tolerance=TOLERANCE,
    near_misses=(
        NearMiss(
            "rows that see nothing",
            Loop(KEYS, guarded=False),
            "Queries that see no key give NaN: exp(-inf - -inf), or 0 / 0 at the end. "
            "Subtract 0 where the maximum is still -INFINITY, and give weight 0 a "
            "share of 0.",
        ),
        NearMiss("mask after the maximum", Loop(KEYS, late="block"), _LATE),
        NearMiss("mask after the maximum of all", Loop(KEYS, late="all"), _LATE),
        _hides(
            "not causal",
            lambda i, j, offset: (j < 0) & (i < 0),
            "Every query sees every key: hide key j where j > i + offset.",
        ),
        _hides(
            "offset forgotten",
            lambda i, j, offset: j > i,
            "The offset is missing: query i sees the keys up to i + offset.",
        ),
        _hides(
            "one too few",
            lambda i, j, offset: j >= i + offset,
            "Query i does not see key i + offset, and it should: hide where j > i + "
            "offset.",
        ),
        _hides(
            "one too many",
            lambda i, j, offset: j > i + offset + 1,
            "Query i sees key i + offset + 1, and should not: hide where j > i + "
            "offset.",
        ),
        _hides(
            "counted in the block",
            lambda i, j, offset: j > i % QUERIES + offset,
            _IN_BLOCK,
        ),
        _hides(
            "counted in the block, unsigned",
            # threadIdx.x has no sign: below 0 the sum is as large as can be.
            lambda i, j, offset: torch.where(
                i % QUERIES + offset < 0,
                j >= _stop(i, offset),
                j > i % QUERIES + offset,
            ),
            _IN_BLOCK,
        ),
        _hides(
            "counted in the tile",
            lambda i, j, offset: (j % KEYS > i + offset) | (j >= _stop(i, offset)),
            "Each tile's keys are compared as if it were the first: key j of a tile is "
            "key start + j.",
        ),
        _hides(
            "offset taken away",
            lambda i, j, offset: (j > i - offset) | (j >= _stop(i, offset)),
            "The offset has the wrong sign: query i sees the keys up to i + offset.",
        ),
        NearMiss(
            "share stays 0",
            _zeros,
            "Every output is 0: share stays 0. It is 1 / weight where weight is not 0.",
        ),
        NearMiss(
            "base stays 0",
            Loop(KEYS, based="zero"),
            "The weights are relative to 0, not to the maximum: base stays what it was "
            "declared. It is higher, and 0 only where higher is still -INFINITY.",
        ),
        NearMiss(
            "base not guarded",
            Loop(KEYS, guarded=False, skips=True),
            "A query that has seen no key yet gives NaN: base is -INFINITY there, and "
            "exp(-inf - -inf) is NaN. Subtract 0 where higher is still -INFINITY.",
        ),
        NearMiss(
            "hidden scores of 0",
            Loop(KEYS, padded=None, blank=0.0),
            "Hidden scores are 0, and exp(0 - base) is a weight like any other: a "
            "hidden score is -INFINITY.",
        ),
        _hides(
            "upside down",
            lambda i, j, offset: j < i + offset,
            "The mask is upside down: each query sees what comes after it.",
        ),
        _hides(
            "stops with the first query",
            _first_row_stop,
            "The loop stops where the block's first query stops, and the others see "
            "further: the last query of the block decides.",
        ),
        *(
            miss
            for miss in loop_mistakes(KEYS, scaled=False, guarded=True)
            if miss.name not in ("weights never added", "keys for values")
        ),
    ),
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
        Count("bytes", "global", "load", at_most=_SKIPPED, ideal=_SKIPPED),
        Count("bytes", "global", "store", at_most=192 * _ROW, ideal=192 * _ROW),
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
