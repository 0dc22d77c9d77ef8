"""What names the mistakes of chapter 9's loop over tiles.

Where two mistakes look alike in some case, the one that is right in more cases stands
first: an answer that was right there can have made only that one.
"""

from __future__ import annotations

from functools import partial

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, NearMiss, Outputs
from autograder.exercises._flash_attention import reference
from autograder.exercises._flash_attention_loop import Loop

_NAN_SAID = (
    "Every number is NaN: an infinity met a 0 or another infinity. Before the first "
    "tile the maximum is -infinity, so exp(top - higher) is 0, as it should be, and "
    "exp(higher - top) or exp(score - top) is infinite. Take the new maximum, "
    "`higher`, of top and of every score first; then make weights relative to it."
)


def _nothing_but_nan(arguments: Arguments) -> Outputs:
    return {"out": torch.full_like(tensor(arguments, "q"), torch.nan)}


def loop_mistakes(
    tile: int, *, scaled: bool, half: bool = False, guarded: bool = False
) -> tuple[NearMiss, ...]:
    """Return the classic mistakes of the loop.

    Args:
        tile: keys at a time.
        scaled: whether the answer itself scales the scores.
        half: whether the weights are rounded to fp16.
        guarded: whether a row without any weight gives 0, not NaN.
    """
    loop = partial(Loop, tile, half=half, guarded=guarded)
    return (
        *_of_the_maximum(loop, guarded),
        *_of_the_rescale(loop),
        *_of_the_sums(loop),
        *_of_the_scores(loop, scaled),
        NearMiss("nothing but NaN", _nothing_but_nan, _NAN_SAID),
    )


def _of_the_maximum(loop: partial[Loop], guarded: bool) -> tuple[NearMiss, ...]:
    comes_of_it = "its output 0" if guarded else "its output 0 / 0"
    return (
        NearMiss(
            "maximum that is no score",
            loop(begins=0.0),
            "Where all scores of a query are far below 0, each of its weights becomes "
            f"0 and {comes_of_it}: something that is no score takes part in the "
            "maximum. It begins at -INFINITY, and a place without a key is hidden "
            "before it.",
        ),
        NearMiss(
            "maximum of all queries",
            loop(based="queries"),
            "Small scores come out right, and large ones vanish: one maximum serves "
            "all queries, and to those whose scores are lower every weight is 0. Each "
            "query has its own: amax(dim=-1, keepdim=True).",
        ),
        NearMiss(
            "maximum of the tile alone",
            loop(based="tile"),
            "Small scores come out right, and large ones overflow: the maximum is that "
            "of all keys so far. Begin it with top, not anew in each tile.",
        ),
        NearMiss(
            "ratio of exponentials",
            loop(ratio=True),
            "Small scores come out right, and large ones overflow: beyond exp(88) an "
            "exponential is infinite. Take exponentials of differences from the "
            "largest score so far alone: exp(top - higher), not exp(top) / "
            "exp(higher).",
        ),
        NearMiss(
            "maximum not kept",
            loop(moved=False),
            "Only the last tile counts: top never rises, so mend is exp(-inf) = 0 in "
            "every tile: end it with top = higher.",
        ),
    )


def _of_the_rescale(loop: partial[Loop]) -> tuple[NearMiss, ...]:
    late = (
        "The rescale comes too late: it is multiplied onto the new tile as well, which "
        "is relative to the new maximum already. First the old sums times mend, then "
        "the tile."
    )
    return (
        NearMiss(
            "no rescale",
            loop(mended="none"),
            "What was added before the maximum rose is still relative to the old "
            "maximum: multiply weight and sum by exp(top - higher) before a tile is "
            "added.",
        ),
        NearMiss(
            "sum not rescaled",
            loop(mended="weight"),
            "The weights' sum is rescaled and the weighted values' sum is not: both "
            "are relative to the maximum, so both are multiplied by exp(top - higher).",
        ),
        NearMiss(
            "weight not rescaled",
            loop(mended="sum"),
            "The weighted values' sum is rescaled and the weights' sum is not: both "
            "are relative to the maximum, so both are multiplied by exp(top - higher).",
        ),
        NearMiss(
            "wrong operand",
            loop(mended="tile"),
            "The rescale is applied to the wrong operand: the new tile's weights are "
            "relative to the new maximum already. It is the old sums that are not.",
        ),
        NearMiss("all rescaled", loop(mended="all"), late),
        NearMiss("weight rescaled late", loop(mended="all weight"), late),
        NearMiss("sum rescaled late", loop(mended="all sum"), late),
        NearMiss(
            "not relative to the maximum",
            loop(based="none"),
            "The weights are not relative to the maximum: a weight is exp(score - "
            "higher), and higher is the largest score so far.",
        ),
    )


def _of_the_sums(loop: partial[Loop]) -> tuple[NearMiss, ...]:
    return (
        NearMiss(
            "weights never added",
            loop(counted=False),
            "The output is divided by 0: weight, the sum of the weights, stays what it "
            "was at the start. Add each tile's weights to it.",
        ),
        NearMiss(
            "nothing kept",
            loop(kept="none"),
            "Only the last tile counts: weight and sum are replaced by the new "
            "tile's. Add to what was there, times mend.",
        ),
        NearMiss(
            "weight not kept",
            loop(kept="sum"),
            "weight is replaced by the new tile's weights: it is the old weight times "
            "mend, plus these.",
        ),
        NearMiss(
            "sum not kept",
            loop(kept="weight"),
            "The sum is replaced by the new tile's weighted values: it is the old sum "
            "times mend, plus these.",
        ),
        NearMiss(
            "divided in every tile",
            loop(divided="tile"),
            "The sum is divided by weight in every tile: divide once, behind the loop.",
        ),
        NearMiss(
            "keys for values",
            loop(values="k"),
            "The weights are multiplied with the keys: the output is a mean of values.",
        ),
    )


def _of_the_scores(loop: partial[Loop], scaled: bool) -> tuple[NearMiss, ...]:
    again = (
        "The scores are scaled twice: once is 1 / sqrt(head_dim)."
        if scaled
        else "The scores are scaled twice: `query` holds the scaled queries already."
    )
    own = (
        NearMiss(
            "scale forgotten",
            loop(scaled=0),
            "The scores are not scaled: they are multiplied by 1 / sqrt(head_dim) "
            "before the maximum.",
        ),
        NearMiss(
            "multiplied by the root",
            loop(scaled=-1),
            "The scores are multiplied by sqrt(head_dim): divide by it.",
        ),
    )
    return (
        NearMiss("scale twice", loop(scaled=2), again),
        *(own if scaled else ()),
        NearMiss(
            "values for keys",
            loop(queried="v"),
            "The queries are multiplied with the values: a score is query times key.",
        ),
        NearMiss(
            "powers of 2",
            loop(powers=True),
            "The weights are powers of 2, and a softmax takes powers of e: 2 ** (x * "
            "log2(e)) is exp(x), so the scores are multiplied by 1.442695 first.",
        ),
    )


def tail_mistakes(tile: int, *, guarded: bool = False) -> tuple[NearMiss, ...]:
    """Return the mistakes of what stands behind the last key in its tile.

    Args:
        tile: keys at a time.
        guarded: whether a row without any weight gives 0, not NaN.
    """
    return (
        NearMiss(
            "places of a finite score",
            Loop(tile, padded=None, empty=-1e3, guarded=guarded),
            "Places past the end have a low score, and where those of the keys are "
            "lower still they take all the weight: -INFINITY alone is below all.",
        ),
        NearMiss(
            "wrong tail",
            Loop(tile, padded=None, guarded=guarded),
            "The last tile has fewer keys than room, and the empty places are counted: "
            "their score is 0, and exp(0 - top) is not 0. Give keys from kv_len on a "
            "score of -INFINITY.",
        ),
        NearMiss(
            "one key too many",
            Loop(tile, padded=1, guarded=guarded),
            "One key past the end is counted, key kv_len, with a score of 0: the keys "
            "are 0 to kv_len - 1, so hide where start + j >= kv_len.",
        ),
    )


def _as_many_keys_as_queries(tile: int, arguments: Arguments) -> Outputs:
    """Return what comes where start + j is compared with q_len."""
    q, k, v = (tensor(arguments, n) for n in ("q", "k", "v"))
    room = -(-k.shape[-2] // tile) * tile
    rest = (0, 0, 0, min(q.shape[-2], room) - k.shape[-2])
    padded = {n: torch.nn.functional.pad(x, rest) for n, x in (("k", k), ("v", v))}
    return reference({**arguments, **padded})


def end_mistakes(tile: int) -> tuple[NearMiss, ...]:
    """Return the mistakes of where the keys end, for a kernel that shows them all."""
    return (
        NearMiss(
            "last key hidden",
            Loop(tile, hides=lambda i, j, _: (j == j[-1]) & (i >= 0), guarded=False),
            "The last key, kv_len - 1, is hidden too: the keys are 0 to kv_len - 1, so "
            "hide where start + j >= kv_len.",
        ),
        NearMiss(
            "queries for keys",
            partial(_as_many_keys_as_queries, tile),
            "Keys are hidden from q_len on: there are kv_len of them.",
        ),
    )
