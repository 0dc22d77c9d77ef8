"""Chapter 10: attention in Triton, from one tile to gradients and a split KV cache."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, Case, Exercise, NearMiss, Outputs
from autograder.exercises._flash_attention_triton import (
    BY_ABSORB,
    PRELUDE,
    STEM,
    TAIL_SEEN,
    TILE,
    TILE_BYTES,
    Seen,
    attention_case,
    exact,
    forward_problem,
    made_in_triton,
    moved,
    nan_where,
    seen_by_all,
    seen_causally,
    spread,
    tolerance,
    walk,
    walk_first_head,
    walk_misses,
    with_adapter,
)
from autograder.exercises._flash_attention_triton_backward import (
    FLASH_BACKWARD,
    TILE_GRADIENTS,
)
from autograder.exercises._flash_attention_triton_decode import (
    DECODE_PIECES,
    DECODE_SPLIT_KV,
)
from autograder.exercises._flash_attention_triton_fast import FLASH_FAST
from autograder.exercises._flash_attention_triton_grouped import FLASH_GQA


def _hidden(generator: torch.Generator) -> Iterator[Case]:
    def some(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    yield attention_case(some(65, 128), 32, regime="growing")
    yield attention_case(some(2, 64), 64, heads=2)
    yield attention_case(some(129, 190), 16, regime="large")


# --- absorb_tile ------------------------------------------------------------------

# Two heads of two tiles: q once, and all of k and v for each tile of queries.
_FULL_LOADS = 2 * (2 + 2 * 2 * 2) * TILE_BYTES
_FULL_CASES = (
    attention_case(128, heads=2),
    attention_case(100),
    attention_case(150, 32, regime="growing"),
    attention_case(1),
    attention_case(130, 16, regime="large"),
)

ABSORB_TILE = Exercise(
    id="absorb_tile",
    stem=STEM,
    title="A tile of keys, absorbed",
    kind="warm-up",
    points=10,
    language="python",
    entry="function",
    name="absorb",
    source="solutions/flash_attention_triton/tiled.py",
    goal="Write `absorb`: take one tile of keys and values into the running softmax.",
    requirements=(
        "`most`, `total` and `acc` are brought to the new maximum, then added to.",
        "Keys that are not `seen` weigh nothing; every query sees one key of the first "
        "tile.",
        "The weights are rounded to 16 bits for the product with v, no sooner.",
    ),
    problem=forward_problem,
    reference=lambda a: {"out": exact(a, seen_by_all)},
    cases=_FULL_CASES,
    hidden=_hidden,
    tolerance=tolerance(seen_by_all),
    near_misses=(*walk_misses(seen_by_all), TAIL_SEEN),
    hints=(
        "Chapter 8's online softmax, for a tile: the new maximum, the weights relative "
        "to it, and one factor that brings all that was summed before to it.",
        "s = tl.dot(q, tl.trans(k)) * scale, then tl.where(seen, s, -inf). new = "
        "tl.maximum(most, tl.max(s, 1)); p = tl.exp(s - new[:, None]); shrink = "
        "tl.exp(most - new).",
        "total = total * shrink + tl.sum(p, 1); acc = acc * shrink[:, None] + "
        "tl.dot(p.to(v.dtype), v); most = new.",
    ),
    onward="Which of its lines would you drop if no logit could exceed 10?",
    structure=(made_in_triton("tl.dot"),),
    prelude=with_adapter("adapt_absorb"),
)


# --- flash_triton -----------------------------------------------------------------


def _below(arguments: Arguments, stop: int) -> torch.Tensor:
    seen = seen_by_all(arguments)
    return seen & (torch.arange(seen.shape[1], device=seen.device) < stop)


def _in_whole_tiles(arguments: Arguments) -> torch.Tensor:
    return _below(arguments, tensor(arguments, "k").shape[2] // TILE * TILE)


def _in_the_first_tile(arguments: Arguments) -> torch.Tensor:
    return _below(arguments, TILE)


FLASH_TRITON = Exercise(
    id="flash_triton",
    stem=STEM,
    title="A walk over the keys",
    kind="core",
    points=5,
    language="python",
    entry="function",
    name="flash_triton",
    source="solutions/flash_attention_triton/tiled.py",
    goal="Let a program walk over the keys of its head, and absorb them tile by tile.",
    requirements=(
        "`absorb` of the last exercise takes each tile in; `seen` is (ROWS, COLS).",
        "Keys from `n` on do not exist: they are loaded as zeros and must not be seen.",
        "Each program reads q, k and v of its head once.",
    ),
    problem=forward_problem,
    reference=lambda a: {"out": exact(a, seen_by_all)},
    cases=_FULL_CASES,
    hidden=_hidden,
    tolerance=tolerance(seen_by_all),
    near_misses=(
        NearMiss(
            "keys past the end",
            TAIL_SEEN.output,
            "The keys past the end take part: they were loaded as zeros, and a logit "
            "of 0 weighs like any other. seen must be false from n on.",
        ),
        NearMiss(
            "whole tiles only",
            lambda a: _with_dead_rows(a, _in_whole_tiles),
            "The last keys are missing: the walk ends with the last whole tile, and "
            "n need not be a multiple of COLS. tl.range(0, n, COLS) takes the rest.",
        ),
        NearMiss(
            "first tile alone",
            lambda a: walk(a, _in_the_first_tile),
            "out holds the first tile's keys alone: cols begins at `first`, which "
            "moves on by COLS from step to step.",
        ),
        NearMiss(
            "first head's keys",
            lambda a: walk_first_head(a, seen_by_all),
            "Every head reads the keys and values of head 0: a program's own begin at "
            "row `head`.",
        ),
        NearMiss(
            "keys for values",
            lambda a: walk(a, seen_by_all, v=spread(a)[0]),
            "out is a mean of keys: v is loaded from v_ptr.",
        ),
    ),
    hints=(
        "Five things happen with each tile: which columns, their keys, their values, "
        "who sees them, absorb.",
        "cols = first + tl.arange(0, COLS), where first goes from 0 to n in steps of "
        "COLS. load_rows(k_ptr, head, cols, n, D) puts zeros where cols >= n.",
        "seen = (rows[:, None] >= 0) & (cols[None, :] < n) has both dimensions; then "
        "most, total, acc = absorb(q, k, v, seen, scale, most, total, acc).",
    ),
    onward="How often is each key read, by all programs together?",
    counts=moved(_FULL_LOADS, 4 * TILE_BYTES),
    structure=(BY_ABSORB,),
    needs=("absorb_tile",),
    prelude=PRELUDE,
)


# --- flash_triton_causal ----------------------------------------------------------

# Four tiles of queries see 1, 2, 3 and 4 tiles of keys: 10 of 16.
_CAUSAL_LOADS = (4 + 10 * 2) * TILE_BYTES


def _seen_in_whole_tiles(arguments: Arguments) -> torch.Tensor:
    n = tensor(arguments, "q").shape[2]
    at = torch.arange(n, device=tensor(arguments, "q").device) // TILE
    return at[None, :] <= at[:, None]


def _strictly(arguments: Arguments) -> torch.Tensor:
    return seen_causally(arguments).tril(-1)


def _before_this_tile(arguments: Arguments) -> torch.Tensor:
    n = tensor(arguments, "q").shape[2]
    at = torch.arange(n, device=tensor(arguments, "q").device)
    return at[None, :] < (at // TILE * TILE)[:, None]


def _with_dead_rows(arguments: Arguments, seen: Seen) -> Outputs:
    out = walk(arguments, seen)["out"]
    return {"out": nan_where(out, ~seen(arguments).any(-1))}


CAUSAL_MISSES = (
    NearMiss(
        "not causal",
        lambda a: walk(a, seen_by_all),
        "This is full attention: query i also sees keys after itself. Hide those with "
        "cols > rows.",
    ),
    NearMiss(
        "the whole diagonal tile seen",
        lambda a: walk(a, _seen_in_whole_tiles),
        "In the tile on the diagonal a query sees keys after itself: the loop stops "
        "there, and within it the mask cols <= rows must cut.",
    ),
    NearMiss(
        "own key hidden",
        lambda a: _with_dead_rows(a, _strictly),
        "A query does not see its own key: the comparison is cols <= rows. The first "
        "query saw nothing, so it is NaN.",
    ),
    NearMiss(
        "diagonal tile dropped",
        lambda a: _with_dead_rows(a, _before_this_tile),
        "The tile on the diagonal is missing: the loop stops where this program's rows "
        "begin, and must stop where they end.",
    ),
)

FLASH_TRITON_CAUSAL = Exercise(
    id="flash_triton_causal",
    stem=STEM,
    title="Causal, and skipping what nobody sees",
    kind="core",
    points=5,
    language="python",
    entry="function",
    name="flash_triton_causal",
    source="solutions/flash_attention_triton/causal.py",
    goal="Query `i` sees the keys `j <= i`; tiles that no query of the program sees "
    "are neither loaded nor multiplied.",
    requirements=(
        "The loop over keys ends with the tile on the diagonal.",
        "In that tile a mask hides what lies ahead of each query.",
        "The rest of the walk is that of flash_kernel.",
    ),
    problem=forward_problem,
    reference=lambda a: {"out": exact(a, seen_causally)},
    cases=(
        attention_case(256),
        attention_case(100, heads=2),
        attention_case(150, 32, regime="growing"),
        attention_case(1),
        attention_case(130, 16, regime="large"),
    ),
    hidden=_hidden,
    tolerance=tolerance(seen_causally),
    near_misses=CAUSAL_MISSES,
    hints=(
        "Two lines differ from flash_kernel. What is the last key that any row of this "
        "program sees?",
        "Program p owns rows p * ROWS to (p + 1) * ROWS - 1, so no key from "
        "(p + 1) * ROWS on is seen; nor is there one from n on. "
        "seen = cols[None, :] <= rows[:, None].",
        "stop = tl.minimum(n, (tl.program_id(0) + 1) * ROWS), and in the loop seen = "
        "cols[None, :] <= rows[:, None].",
    ),
    onward="Only the last tile needs the mask. Split the loop in two: what is gained?",
    counts=moved(_CAUSAL_LOADS, 4 * TILE_BYTES),
    structure=(BY_ABSORB,),
    needs=("absorb_tile",),
    prelude=PRELUDE,
)

EXERCISES = (
    ABSORB_TILE,
    FLASH_TRITON,
    FLASH_TRITON_CAUSAL,
    TILE_GRADIENTS,
    FLASH_BACKWARD,
    FLASH_GQA,
    DECODE_PIECES,
    DECODE_SPLIT_KV,
    FLASH_FAST,
)
