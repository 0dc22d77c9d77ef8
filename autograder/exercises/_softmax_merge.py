"""Chapter 8: what comes of pairs that are merged in a wrong way, thread by thread.

A merge that forgets a factor gives other numbers in another order, so no formula over
the row tells what comes out. Here the kernel's own order is gone through, in fp32: a
thread over its columns, five shuffles, eight warps.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from autograder.exercise import NearMiss
from autograder.exercises._softmax import (
    THREADS,
    Mistake,
    cut,
    highest,
    of_rows,
)

Pair = tuple[torch.Tensor, torch.Tensor]
Merge = Callable[[Pair, Pair], Pair]
OFFSETS = (16, 8, 4, 2, 1)


def merging(rule: Merge) -> Merge:
    """Return a rule that lets a pair pass when the other one has seen nothing."""

    def merge(a: Pair, b: Pair) -> Pair:
        made = rule(a, b)
        for other, same in ((b, a), (a, b)):  # the first guard is asked last, and wins
            empty = other[0] == -torch.inf
            made = (
                torch.where(empty, same[0], made[0]),
                torch.where(empty, same[1], made[1]),
            )
        return made

    return merge


def _right(a: Pair, b: Pair) -> Pair:
    most = torch.fmax(a[0], b[0])
    return most, a[1] * torch.exp(a[0] - most) + b[1] * torch.exp(b[0] - most)


def _first_alone(a: Pair, b: Pair) -> Pair:
    most = torch.fmax(a[0], b[0])
    return most, a[1] * torch.exp(a[0] - most) + b[1]


def _second_alone(a: Pair, b: Pair) -> Pair:
    most = torch.fmax(a[0], b[0])
    return most, a[1] + b[1] * torch.exp(b[0] - most)


def _exchanged(a: Pair, b: Pair) -> Pair:
    most = torch.fmax(a[0], b[0])
    return most, a[1] * torch.exp(b[0] - most) + b[1] * torch.exp(a[0] - most)


def _maximum_stays(a: Pair, b: Pair) -> Pair:
    return a[0], a[1] + b[1] * torch.exp(b[0] - a[0])


def by_tree(
    rule: Merge = _right,
    offsets: tuple[int, ...] = OFFSETS,
    warps: int = 8,
    totals: bool = True,
) -> Mistake:
    """Return the softmax that a block makes with this rule.

    Args:
        rule: puts two pairs together; empty ones never come to it.
        offsets: the partners of the shuffles, in their order.
        warps: how many of the eight are merged in the end.
        totals: whether the totals are shuffled, or the maxima alone.
    """
    merge = merging(rule)

    def made(x: torch.Tensor) -> torch.Tensor:
        x = x.float()
        parts = cut(x, THREADS)
        mine = (torch.full_like(parts[:, 0], -torch.inf), torch.zeros_like(parts[:, 0]))
        for part in parts.unbind(1):
            mine = merge(mine, (part, torch.ones_like(part)))
        for offset in offsets:
            partner = torch.arange(THREADS) ^ offset
            theirs = mine[1][:, partner] if totals else mine[1]
            mine = merge(mine, (mine[0][:, partner], theirs))
        most, total = (room[:, ::32] for room in mine)
        both = most[:, 0], total[:, 0]
        for warp in range(1, warps):
            both = merge(both, (most[:, warp], total[:, warp]))
        return (torch.exp(x - both[0][:, None]) / both[1][:, None]).double()

    return of_rows(made)


def _no_total(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp((x - highest(x)).float()).double()
    return e / (0.0 * e.sum(1, keepdim=True))  # NaN where the sum is


def _all_empty(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > -torch.inf, torch.inf, torch.nan)


_ONE_FACTOR = (
    "One of the two totals is added as it is. Either may have the smaller maximum, so "
    "each is multiplied by expf(its own maximum - the new one)."
)

MERGES = (
    NearMiss("factor of the first alone", by_tree(_first_alone), _ONE_FACTOR),
    NearMiss("factor of the second alone", by_tree(_second_alone), _ONE_FACTOR),
    NearMiss(
        "factors exchanged",
        by_tree(_exchanged),
        "The factors are exchanged: a.total goes with expf(a.maximum - both.maximum), "
        "and b.total with expf(b.maximum - both.maximum).",
    ),
    NearMiss(
        "maximum stays",
        by_tree(_maximum_stays),
        "The maximum never grows: the pair keeps a's, and where b's is far above, its "
        "exponential overflows. both.maximum is the larger of the two.",
    ),
    NearMiss(
        "never anything seen",
        of_rows(_all_empty),
        "Nothing is ever seen, the maximum is still -INFINITY and the total 0: where "
        "one maximum is -INFINITY, merge returns the *other* pair.",
    ),
    NearMiss(
        "pairs of 0",
        of_rows(_no_total),
        "The maximum is right and every total is 0: a single number x is the pair "
        "(x, 1), since exp(x - x) is 1.",
    ),
    *(
        NearMiss(
            f"shuffles {offsets[0]} to {offsets[-1]}",
            by_tree(offsets=offsets),
            "Not all of a warp is merged: 32 lanes take five steps, with offsets 16, "
            "8, 4, 2 and 1.",
        )
        for offsets in (OFFSETS[1:], OFFSETS[:-1])
    ),
    NearMiss(
        "maxima shuffled alone",
        by_tree(totals=False),
        "The partner's maximum is shuffled, and its total is not: a lane merges its "
        "own total with another's maximum. Each number takes a shuffle of its own.",
    ),
    NearMiss(
        "one warp short",
        by_tree(warps=7),
        "The last warp is missing from the total: room has eight pairs, room[0] to "
        "room[7].",
    ),
)
