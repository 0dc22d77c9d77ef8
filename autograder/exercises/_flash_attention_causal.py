"""What names the mistakes of chapter 9's causal kernel.

A block brings tiles as far as some query of its own sees, and a mistake in the mask
shows only there: most stand here once for a kernel that brings them all, and once for
one that stops as it should.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, NearMiss, Outputs
from autograder.exercises._flash_attention import QUERIES
from autograder.exercises._flash_attention_loop import Hidden, Loop
from autograder.exercises._flash_attention_mistakes import loop_mistakes, tail_mistakes


def _sees_last(i: torch.Tensor) -> torch.Tensor:
    """Return the last query of query i's block."""
    return (i // QUERIES * QUERIES + QUERIES).clamp(max=len(i)) - 1


def _stop(keys: int, i: torch.Tensor, offset: int) -> torch.Tensor:
    """Return where the last tile ends that query i's block brings."""
    return -(-(_sees_last(i) + offset + 1).clamp(min=0) // keys) * keys


def _masks() -> tuple[tuple[str, Hidden, str], ...]:
    """Return what may be hidden in the right one's place, and what to say of it."""
    block = (
        "In all blocks but the first other keys are seen than should be: the query is "
        "`row`, which counts from the first of the head, not threadIdx.x."
    )
    return (
        (
            "not causal",
            lambda i, j, _: (j < 0) & (i < 0),
            "Every query sees every key: hide key j where j > i + offset.",
        ),
        (
            "offset forgotten",
            lambda i, j, _: j > i,
            "The offset is missing: query i sees the keys up to i + offset.",
        ),
        (
            "offset taken away",
            lambda i, j, offset: j > i - offset,
            "The offset has the wrong sign: query i sees the keys up to i + offset.",
        ),
        (
            "one too few",
            lambda i, j, offset: j >= i + offset,
            "Query i does not see key i + offset, and it should: hide where j > i + "
            "offset.",
        ),
        (
            "one too many",
            lambda i, j, offset: j > i + offset + 1,
            "Query i sees key i + offset + 1, and should not: hide where j > i + "
            "offset.",
        ),
        (
            "as the block's first",
            lambda i, j, offset: j > i // QUERIES * QUERIES + offset,
            "All queries of a block see what its first one sees: the query is `row`, "
            "not `first`.",
        ),
        (
            "as the block's last",
            lambda i, j, offset: j > _sees_last(i) + offset,
            "All queries of a block see what its last one sees: that is where the loop "
            "stops. Each hides, besides, what lies behind row + offset.",
        ),
        ("counted in the block", lambda i, j, offset: j > i % QUERIES + offset, block),
        (
            "upside down",
            lambda i, j, offset: j < i + offset,
            "The mask is upside down: each query sees what comes after it.",
        ),
        (
            "seen and hidden exchanged",
            lambda i, j, offset: j <= i + offset,
            "The mask is upside down: each query sees what comes after it.",
        ),
    )


def _stopping(keys: int, hides: Hidden) -> Hidden:
    """Hide, besides, the tiles that the block does not bring."""
    return lambda i, j, offset: hides(i, j, offset) | (j >= _stop(keys, i, offset))


_BY_THE_BLOCK = ("as the block's first", "as the block's last")
_WHATEVER_THE_STOP = ("one too few", "counted in the block")


def _of_the_mask(keys: int) -> Iterator[NearMiss]:
    for name, hides, message in _masks():
        # Whoever exchanges the two sees the empty places as well.
        padded = None if "exchanged" in name else 0
        here = _stopping(keys, hides)
        if name not in _BY_THE_BLOCK:
            yield NearMiss(name, Loop(keys, hides=hides, padded=padded), message)
        if name not in _WHATEVER_THE_STOP:
            yield NearMiss(
                f"{name}, tiles", Loop(keys, hides=here, padded=padded), message
            )
    yield NearMiss(
        "counted in the block, unsigned",
        # threadIdx.x has no sign: below 0 the sum is as large as can be.
        Loop(
            keys,
            hides=_stopping(
                keys,
                lambda i, j, offset: (i % QUERIES + offset >= 0)
                & (j > i % QUERIES + offset),
            ),
        ),
        _masks()[7][2],
    )
    yield NearMiss(
        "counted in the tile",
        Loop(keys, hides=_stopping(keys, lambda i, j, offset: j % keys > i + offset)),
        "Each tile's keys are compared as if it were the first: key j of a tile is key "
        "start + j.",
    )
    yield NearMiss(
        "counted over the heads",
        lambda arguments: _counted_over_heads(keys, arguments),
        "In all heads but the first other keys are seen than should be: the query is "
        "`row`; `own` counts the queries of the heads before as well.",
    )


def _counted_over_heads(keys: int, arguments: Arguments) -> Outputs:
    q, k, v = (tensor(arguments, n) for n in ("q", "k", "v"))
    made = []
    for head in range(len(q)):
        before = head * q.shape[-2]

        def hides(
            i: torch.Tensor, j: torch.Tensor, offset: int, before: int = before
        ) -> torch.Tensor:
            return j > i + offset + before

        one = {n: x[head : head + 1] for n, x in (("q", q), ("k", k), ("v", v))}
        loop = Loop(keys, hides=_stopping(keys, hides))
        made.append(loop({**arguments, **one})["out"])
    return {"out": torch.cat(made)}


def _of_the_stop(keys: int) -> Iterator[NearMiss]:
    def dropped(i: torch.Tensor, j: torch.Tensor, offset: int) -> torch.Tensor:
        stop = (_sees_last(i) + offset + 1).clamp(max=int(j[-1]) + 1)
        return j >= stop // keys * keys

    def first(i: torch.Tensor, j: torch.Tensor, offset: int) -> torch.Tensor:
        stop = i // QUERIES * QUERIES + offset + 1
        return j >= -(-stop.clamp(min=0) // keys) * keys

    found: tuple[tuple[str, Hidden, str], ...] = (
        (
            "stops a key too early",
            lambda i, j, offset: j >= _stop(keys, i, offset - 1),
            "Query i does not see key i + offset where a tile begins with it: stop is "
            "the first key that nobody sees, last + offset + 1.",
        ),
        (
            "stops with the first query",
            first,
            "The loop stops where the block's first query stops, and the others see "
            "further: the last query of the block decides.",
        ),
        (
            "stops without the offset",
            lambda i, j, _: j >= _stop(keys, i, 0),
            "The loop stops as if offset were 0: the block's last query sees the keys "
            "up to last + offset.",
        ),
        (
            "stops with the offset taken away",
            lambda i, j, offset: j >= _stop(keys, i, -offset),
            "The loop stops at last - offset: the block's last query sees the keys up "
            "to last + offset.",
        ),
        (
            "stops at whole tiles",
            dropped,
            "The last tile is dropped where it is not full: the loop goes on while "
            "start < stop, so stop need not be a multiple of KEYS.",
        ),
    )
    for name, stops, message in found:
        yield NearMiss(name, Loop(keys, hides=partial(_seen_before, stops)), message)


def _seen_before(
    stops: Hidden, i: torch.Tensor, j: torch.Tensor, offset: int
) -> torch.Tensor:
    """Hide what the query does not see, and what lies behind a wrong stop."""
    return (j > i + offset) | stops(i, j, offset)


def _of_the_base(keys: int) -> tuple[NearMiss, ...]:
    low = (
        "Hidden scores are low, not -INFINITY: a query that sees no key takes a mean "
        "of hidden ones, and where all that it sees is lower still, so does any other."
    )
    return (
        NearMiss(
            "base not below 0",
            Loop(keys, based="floor"),
            "Where a query's scores are all below 0 its weights are relative to 0, and "
            "its sums to the maximum: base is higher, and 0 only where higher is still "
            "-INFINITY.",
        ),
        NearMiss(
            "rows that see nothing",
            Loop(keys, guarded=False),
            "Queries that see no key give NaN: exp(-inf - -inf), or 0 / 0 at the end. "
            "Subtract 0 where the maximum is still -INFINITY, and give weight 0 a "
            "share of 0.",
        ),
        NearMiss(
            "base not guarded",
            Loop(keys, guarded=False, skips=True),
            "A query that has seen no key yet gives NaN: base is -INFINITY there, and "
            "exp(-inf - -inf) is NaN. Subtract 0 where higher is still -INFINITY.",
        ),
        *(_late(keys, late, tail) for late in _LATE for tail in ("", ", tail too")),
        *(
            NearMiss(f"hidden scores of {score:g}", _blank(keys, score), low)
            for score in (-1e9, -1e3)
        ),
        NearMiss(
            "hidden scores of 0",
            _blank(keys, 0.0),
            "Hidden scores are 0, and exp(0 - base) is a weight like any other: a "
            "hidden score is -INFINITY.",
        ),
        NearMiss(
            "base stays 0",
            Loop(keys, based="zero"),
            "The weights are relative to 0, not to the maximum: base stays what it was "
            "declared. It is higher, and 0 only where higher is still -INFINITY.",
        ),
        NearMiss(
            "base of the tiles before",
            Loop(keys, based="old"),
            "The weights are relative to the maximum of the tiles before: base is "
            "higher, which has this tile in it, and 0 only where higher is still "
            "-INFINITY.",
        ),
        NearMiss(
            "base 0 in the first tile",
            Loop(keys, based="first"),
            "In the first tile the weights are relative to 0: it is higher, not top, "
            "that is compared with -INFINITY.",
        ),
    )


_LATE: tuple[Literal["block", "all"], ...] = ("block", "all")


def _late(keys: int, late: Literal["block", "all"], tail: str) -> NearMiss:
    return NearMiss(
        f"mask after the maximum, {late}{tail}",
        Loop(keys, late=late, padded=None if tail else 0),
        "Hidden scores take part in the maximum: where one of them is far above all "
        "that the query sees, every weight becomes 0. Hide first, then take the "
        "maximum.",
    )


def _blank(keys: int, score: float) -> Loop:
    return Loop(keys, padded=None, empty=score, blank=score)


def _zeros(arguments: Arguments) -> Outputs:
    return {"out": torch.zeros_like(tensor(arguments, "q"))}


def causal_mistakes(keys: int) -> tuple[NearMiss, ...]:
    """Return the known mistakes of ``flash_causal``, with ``keys`` in a tile."""
    of_the_loop = {
        miss.name: miss for miss in loop_mistakes(keys, scaled=False, guarded=True)
    }
    return (
        of_the_loop["maximum that is no score"],
        *tail_mistakes(keys, guarded=True),
        *_of_the_stop(keys),
        *_of_the_base(keys),
        *_of_the_mask(keys),
        NearMiss(
            "share stays 0",
            _zeros,
            "Every output is 0. Either share stays 0: it is 1 / weight where weight is "
            "not 0. Or stop stays 0, and no tile is brought.",
        ),
        NearMiss(
            "not divided",
            Loop(keys, divided="never"),
            "The output is not divided by weight: share is 1 / weight where weight is "
            "not 0.",
        ),
        *(of_the_loop[name] for name in _OF_THE_LOOP),
    )


# The others are of what the exercise itself brings.
_OF_THE_LOOP = (
    "maximum of the tile alone",
    "maximum not kept",
    "no rescale",
    "scale twice",
    "values for keys",
)
