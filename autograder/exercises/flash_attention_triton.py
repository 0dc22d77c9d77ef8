"""Chapter 10: attention in Triton, from one tile to gradients and a split KV cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, Case, Exercise, NearMiss, Outputs
from autograder.exercises._flash_attention_triton import (
    BY_ABSORB,
    PRELUDE,
    STEM,
    TAIL_SEEN,
    TILE,
    Seen,
    attention_case,
    exact,
    forward_problem,
    last_tile_alone,
    made_in_triton,
    nan_where,
    nothing_but_nan,
    seen_by_all,
    seen_causally,
    tolerance,
    walk,
    walk_first_head,
    walk_misses,
    with_adapter,
)
from autograder.exercises._flash_attention_triton_absorb import absorb_slips
from autograder.exercises._flash_attention_triton_backward import (
    FLASH_BACKWARD,
    TILE_GRADIENTS,
)
from autograder.exercises._flash_attention_triton_decode import DECODE_PIECES
from autograder.exercises._flash_attention_triton_fast import FLASH_FAST
from autograder.exercises._flash_attention_triton_grouped import FLASH_GQA
from autograder.exercises._flash_attention_triton_slips import CAUSAL_SLIPS, FULL_SLIPS
from autograder.exercises._flash_attention_triton_split import DECODE_SPLIT_KV
from autograder.totals import moves


def _hidden(generator: torch.Generator) -> Iterator[Case]:
    def some(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    yield attention_case(some(65, 128), 32, regime="growing")
    yield attention_case(some(2, 64), 64, heads=2)
    yield attention_case(some(129, 190), 16, regime="large")


# --- absorb_tile ------------------------------------------------------------------

# Two heads of two tiles: q once, and all of k and v for each tile of queries.
_FULL_CASES = (
    attention_case(128, heads=2),
    attention_case(100, heads=2),
    attention_case(150, 32, regime="growing"),
    attention_case(1),
    attention_case(130, 16, regime="large"),
    attention_case(70, 16, regime="low"),
    attention_case(100, 16, regime="even"),
)

_LAST_TILE = (
    "out holds the last tile's keys alone, normalised: either most is returned as it "
    "came, so that exp(most - new) is 0 in every tile; or the three begin anew in "
    "each. End with most = new, and hand on what the tile before returned."
)


def _in_tiles(arguments: Arguments, slip: str) -> Outputs:
    """Do the online softmax by 64 x 64 tiles, with a slip of dimensions in them."""
    q, k, v = (tensor(arguments, name).float() for name in "qkv")
    n = q.shape[2]
    pad = torch.nn.functional.pad
    q, k, v = (pad(x, (0, 0, 0, -n % TILE)) for x in (q, k, v))
    q = q.unflatten(2, (-1, TILE))
    most = torch.full((*q.shape[:4], 1), -math.inf, device=q.device)
    total, acc = torch.zeros_like(most), torch.zeros_like(q)
    for first in range(0, n, TILE):
        tile = slice(first, first + TILE)
        s = q @ k[:, :, None, tile].mT * q.shape[-1] ** -0.5
        hidden = torch.arange(first, first + TILE, device=q.device) >= n
        s = s.masked_fill(hidden, -math.inf)
        high = s.amax(-2)[..., None] if slip == "of columns" else s.amax(-1, True)
        high = s.amax((-2, -1), True) if slip == "of all" else high
        new = torch.maximum(most, high)
        p = torch.exp(s - (new.mT if slip == "across" else new))
        shrink = torch.exp(most - new)
        total = total * shrink
        total += p.sum(-2)[..., None] if slip == "down" else p.sum(-1, True)
        acc = acc * shrink + p.half().float() @ v[:, :, None, tile]
        most = new
    return {"out": (acc / total).flatten(2, 3)[:, :, :n]}


_DIMENSIONS = tuple(
    NearMiss(slip, partial(_in_tiles, slip=slip), message)
    for slip, message in (
        (
            "of columns",
            "The maximum is taken over the queries: s is (ROWS, COLS), and each query "
            "needs the largest of its own row, tl.max(s, 1).",
        ),
        (
            "of all",
            "One maximum serves all queries of the tile, and where one's logits are "
            "far lower its weights vanish: each needs that of its own row, "
            "tl.max(s, 1).",
        ),
        (
            "across",
            "Each column of s is made relative to another query's maximum: a vector "
            "lies along the columns unless it is told otherwise. new[:, None] is one "
            "number a row.",
        ),
        (
            "down",
            "total adds the weights of a key over all queries: each query needs the "
            "sum of its own row, tl.sum(p, 1).",
        ),
    )
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
    near_misses=(
        *walk_misses(seen_by_all),
        NearMiss("last tile alone", last_tile_alone, _LAST_TILE),
        *_DIMENSIONS,
        TAIL_SEEN,
        *absorb_slips({}),
    ),
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


def _begun_at(arguments: Arguments, starts: range) -> Outputs:
    """Attend with tiles that begin at other keys: some count more than once."""
    q, k, v = (tensor(arguments, name).double() for name in "qkv")
    at = torch.arange(k.shape[2], device=k.device)
    times = torch.zeros_like(at)
    for start in starts:
        times += (at >= start) & (at < start + TILE)
    s = q @ k.mT * q.shape[3] ** -0.5 + times.log()
    return {"out": torch.softmax(s, -1) @ v}


def _tiles_counted(arguments: Arguments, up: bool) -> Outputs:
    n = tensor(arguments, "k").shape[2]
    return _begun_at(arguments, range((n + TILE - 1 if up else n) // TILE))


def _from_head(arguments: Arguments, name: str) -> torch.Tensor:
    """Return the keys or values of head 0 for every head."""
    return tensor(arguments, name)[:, :1].expand_as(tensor(arguments, "q"))


def _by_rows(arguments: Arguments, name: str) -> Outputs:
    """Walk, and bring in each step what lies at the program's own rows."""
    given = {n: tensor(arguments, n) for n in "qkv"}
    n = given["q"].shape[2]
    made = []
    for first in range(0, n, TILE):
        rows = slice(first, first + TILE)
        own = given[name][:, :, rows]
        own = torch.nn.functional.pad(own, (0, 0, 0, TILE - own.shape[2]))
        again = own.repeat(1, 1, -(-n // TILE), 1)[:, :, :n]
        tiled = {**given, "q": given["q"][:, :, rows], name: again}
        made.append(exact({**arguments, **tiled}, seen_by_all))
    return {"out": torch.cat(made, 2)}


_COUNTED = (
    "The tiles overlap: first goes up by 1, and cols takes COLS keys from there on. It "
    "goes over keys, a tile at a time: tl.range(0, n, COLS)."
)
_SLIPS = (
    NearMiss("last tile alone", last_tile_alone, _LAST_TILE),
    NearMiss(
        "nothing absorbed",
        nothing_but_nan,
        "Every number is NaN, 0 / 0: nothing was absorbed. absorb returns most, total "
        "and acc anew: most, total, acc = absorb(...).",
    ),
    NearMiss(
        "a tile a key",
        lambda a: _begun_at(a, range(tensor(a, "k").shape[2])),
        _COUNTED,
    ),
    NearMiss("tiles counted", lambda a: _tiles_counted(a, True), _COUNTED),
    NearMiss("whole tiles counted", lambda a: _tiles_counted(a, False), _COUNTED),
    NearMiss(
        "first head's keys alone",
        lambda a: walk(a, seen_by_all, k=_from_head(a, "k")),
        "Every head reads the keys of head 0: a program's own begin at row `head`.",
    ),
    NearMiss(
        "first head's values",
        lambda a: walk(a, seen_by_all, v=_from_head(a, "v")),
        "Every head reads the values of head 0: a program's own begin at row `head`.",
    ),
    NearMiss(
        "keys of the rows",
        lambda a: _by_rows(a, "k"),
        "Each step brings the same keys, those at the program's own rows: keys and "
        "values are loaded at cols.",
    ),
    NearMiss(
        "values of the rows",
        lambda a: _by_rows(a, "v"),
        "Each step brings the same values, those at the program's own rows: keys and "
        "values are loaded at cols.",
    ),
)

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
        *_SLIPS,
        *FULL_SLIPS,
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
    counts=moves({"k": 2, "v": 2}),
    structure=(BY_ABSORB,),
    needs=("absorb_tile",),
    prelude=PRELUDE,
)


# --- flash_triton_causal ----------------------------------------------------------

# In each of two heads three tiles of queries see 1, 2 and 3 tiles of keys: 6 of 9.


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


def _diagonal_turned(arguments: Arguments) -> torch.Tensor:
    n = tensor(arguments, "q").shape[2]
    at = torch.arange(n, device=tensor(arguments, "q").device)
    row, column = at[:, None], at[None, :]
    ahead = column % TILE >= row % TILE
    return (column // TILE < row // TILE) | ((column // TILE == row // TILE) & ahead)


def _upside_down(arguments: Arguments) -> torch.Tensor:
    return _diagonal_turned(arguments) & seen_by_all(arguments).triu()


def _seen_upside_down(arguments: Arguments) -> Outputs:
    out = walk(arguments, _upside_down, tail_only_last=True)["out"]
    # All programs but the first meet a tile of which they see nothing: NaN.
    late = torch.arange(out.shape[2], device=out.device) >= TILE
    return {"out": nan_where(out, late)}


def _diagonal_and_tail(arguments: Arguments) -> Outputs:
    """Let the whole diagonal tile be seen, with what it holds past the end."""
    return walk(arguments, _seen_in_whole_tiles, tail_only_last=True)


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
        "the diagonal tile and the tail seen",
        _diagonal_and_tail,
        "In the tile on the diagonal a query sees keys after itself, those past the "
        "end too. seen has a row for each query and a column for each key: cols[None, "
        ":] <= rows[:, None].",
    ),
    NearMiss(
        "upside down",
        _seen_upside_down,
        "The mask is upside down: query i sees the keys up to itself, cols <= rows.",
    ),
    NearMiss(
        "the diagonal tile turned",
        lambda a: walk(a, _diagonal_turned, tail_only_last=True),
        "The mask is turned: seen has a row for each query and a column for each key, "
        "cols[None, :] <= rows[:, None].",
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
        attention_case(192, heads=2),
        attention_case(100, heads=2),
        attention_case(129, 32, regime="growing"),
        attention_case(1),
        attention_case(130, 16, regime="large"),
    ),
    hidden=_hidden,
    tolerance=tolerance(seen_causally),
    near_misses=(*CAUSAL_SLIPS, *CAUSAL_MISSES),
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
    counts=(
        # The blocks of queries see one, two and three of the three of keys.
        moves({"k": 6 / 3, "v": 6 / 3})
    ),
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
