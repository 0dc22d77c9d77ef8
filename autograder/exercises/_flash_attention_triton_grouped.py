"""Chapter 10's grouped heads: several query heads share the keys of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, Case, Exercise, NearMiss, Outputs, Structure
from autograder.exercises._flash_attention_triton import (
    BY_ABSORB,
    PRELUDE,
    STEM,
    TILE,
    attention_case,
    exact,
    forward_problem,
    nan_where,
    seen_by_all,
    seen_causally,
    spread,
    tolerance,
    walk,
    walk_first_head,
)
from autograder.exercises._flash_attention_triton_slips import GROUPED_SLIPS
from autograder.totals import moves

# --- flash_gqa --------------------------------------------------------------------


def _by_remainder(arguments: Arguments) -> Outputs:
    heads, kv_heads = (tensor(arguments, name).shape[1] for name in "qk")
    at = torch.arange(heads, device=tensor(arguments, "q").device) % kv_heads
    k, v = tensor(arguments, "k")[:, at], tensor(arguments, "v")[:, at]
    return walk(arguments, seen_causally, k=k, v=v)


def _top_left(arguments: Arguments) -> torch.Tensor:
    return seen_by_all(arguments).tril()


def _own_token_hidden(arguments: Arguments) -> torch.Tensor:
    return seen_by_all(arguments).tril(_ahead(arguments) - 1)


def _turned_ahead(arguments: Arguments) -> torch.Tensor:
    return seen_by_all(arguments).tril(-_ahead(arguments)) & _before(
        arguments, -_ahead(arguments)
    )


def _ahead(arguments: Arguments) -> int:
    q, k = tensor(arguments, "q"), tensor(arguments, "k")
    return k.shape[2] - q.shape[2]


def _before(arguments: Arguments, ahead: int) -> torch.Tensor:
    """Say which keys lie before the loop's end, with so many ahead of the rows."""
    q, k = tensor(arguments, "q"), tensor(arguments, "k")
    rows = torch.arange(q.shape[2], device=q.device)[:, None]
    stop = (rows // TILE + 1) * TILE + ahead
    stop = -(-stop // TILE) * TILE  # the tile is loaded whole
    return torch.arange(k.shape[2], device=q.device) < stop


def _stops_too_early(arguments: Arguments) -> torch.Tensor:
    return seen_causally(arguments) & _before(arguments, 0)


def _of_batch_0(arguments: Arguments) -> Outputs:
    k, v = (t[:1].expand_as(t) for t in spread(arguments))
    return walk(arguments, seen_causally, k=k, v=v)


def _zeros_from_n(arguments: Arguments) -> Outputs:
    n = tensor(arguments, "q").shape[2]
    k, v = (t.clone() for t in spread(arguments))
    k[:, :, n:], v[:, :, n:] = 0, 0
    return walk(arguments, seen_causally, k=k, v=v)


def _grouped_hidden(generator: torch.Generator) -> Iterator[Case]:
    def some(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    n = some(2, 70)
    yield attention_case(n, 32, heads=6, kv_heads=2, keys=n + some(1, 60))
    yield attention_case(some(65, 100), 16, heads=3, kv_heads=1, keys=some(100, 140))


def _nan_in_dead_rows(
    arguments: Arguments, seen: Callable[[Arguments], torch.Tensor]
) -> Outputs:
    out = walk(arguments, seen)["out"]
    return {"out": nan_where(out, ~seen(arguments).any(-1))}


# Two query heads, 128 new queries after 128 old keys: 3 and 4 tiles of keys.

FLASH_GQA = Exercise(
    id="flash_gqa",
    stem=STEM,
    title="Grouped heads, and queries after a cache",
    kind="core",
    points=15,
    language="python",
    entry="function",
    name="flash_gqa",
    source="solutions/flash_attention_triton/grouped.py",
    goal="Let `heads // kv_heads` query heads share one KV head, where the `n` queries "
    "are the last of `keys` tokens.",
    requirements=(
        "Query head `h` reads KV head `h // (heads // kv_heads)` of its own batch.",
        "Query `i` is token `keys - n + i`: it sees the keys up to that one.",
        "Tiles that no query of the program sees are not loaded.",
    ),
    problem=forward_problem,
    reference=lambda a: {"out": exact(a, seen_causally)},
    cases=(
        attention_case(128, heads=2, kv_heads=1, keys=256),
        attention_case(50, heads=4, batch=2, kv_heads=2, keys=70),
        attention_case(100, 32, heads=3, kv_heads=3, keys=100, regime="growing"),
        attention_case(1, 16, heads=6, kv_heads=2, keys=129),
    ),
    hidden=_grouped_hidden,
    tolerance=tolerance(seen_causally),
    near_misses=(
        *GROUPED_SLIPS,
        NearMiss(
            "heads dealt out in turn",
            _by_remainder,
            "Query head h reads KV head h % kv_heads: neighbours share, so it is "
            "h // (heads // kv_heads).",
        ),
        NearMiss(
            "first KV head for all",
            lambda a: walk_first_head(a, seen_causally),
            "Every query head reads KV head 0 of the batch.",
        ),
        NearMiss(
            "counted from the first key",
            lambda a: walk(a, _top_left),
            "Query i sees keys 0 to i, as if there were no tokens before: it is token "
            "keys - n + i.",
        ),
        NearMiss(
            "own token hidden",
            lambda a: _nan_in_dead_rows(a, _own_token_hidden),
            "A query does not see its own token: the comparison is cols <= rows + "
            "ahead.",
        ),
        NearMiss(
            "ahead upside down",
            lambda a: _nan_in_dead_rows(a, _turned_ahead),
            "The older tokens are taken away, not added: query i is token keys - n + "
            "i.",
        ),
        NearMiss(
            "stops too early",
            lambda a: walk(a, _stops_too_early),
            "The loop stops as if there were no tokens before: the last query of the "
            "program sees keys - n more than its own number.",
        ),
        NearMiss(
            "first batch for all",
            _of_batch_0,
            "Every batch reads the keys and values of the first: those of batch b "
            "begin b * kv_heads heads further on.",
        ),
        NearMiss(
            "zeros from n",
            _zeros_from_n,
            "Keys from n on are loaded as zeros: there are `keys` of them, and that is "
            "where load_rows stops.",
        ),
        NearMiss(
            "not causal",
            lambda a: walk(a, seen_by_all),
            "This is full attention: query i also sees keys after token keys - n + i.",
        ),
    ),
    hints=(
        "Two numbers differ from causal_kernel: where this head's keys begin, and how "
        "many keys lie ahead of the first query.",
        "There are batch * kv_heads rows of keys * D numbers: this program's begin at "
        "(b * kv_heads + h // (heads // kv_heads)) * keys. ahead = keys - n, and "
        "query row sees cols <= rows + ahead.",
        "stop = tl.minimum(keys, (tl.program_id(0) + 1) * ROWS + ahead); seen = "
        "(cols[None, :] <= rows[:, None] + ahead) & (cols[None, :] < keys).",
    ),
    onward="Put the heads of a group into one tile: how often is the cache read then?",
    counts=moves({"k": 7 / 2, "v": 7 / 2}),
    structure=(
        BY_ABSORB,
        Structure(
            runs_no=("repeat", "expand", "index", "gather", "take"),
            message="the values are right, and the KV heads were copied for every "
            "query head that reads them: they are shared, so that each lies in memory "
            "once. Let the kernel find a head's keys.",
        ),
    ),
    needs=("absorb_tile",),
    prelude=PRELUDE,
)
