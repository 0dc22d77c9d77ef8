"""Chapter 9's detective: a merge of lanes that passed its test."""

from __future__ import annotations

import math

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    NearMiss,
    Outputs,
    Problem,
)
from autograder.exercises._flash_attention import (
    STEM,
    TOLERANCE,
    case_of,
    hidden_shapes,
    kernel_problem,
    reference,
    scale_of,
)
from autograder.totals import moves


def _detective_problem(case: Case, generator: torch.Generator) -> Problem:
    arguments, outputs = kernel_problem(case, generator)
    del arguments["q_len"]
    return Problem(arguments, outputs, Launch((case.sizes["q_len"],), (32,)))


def _merged(arguments: Arguments, how: str) -> Outputs:
    """Merge 32 lanes' partial results with a mistake, as the kernel's tree does."""
    q, k, v = (tensor(arguments, n).float() for n in ("q", "k", "v"))
    scores = q @ k.mT * scale_of(arguments)
    rest = -k.shape[-2] % 32
    scores = torch.nn.functional.pad(scores, (0, rest), value=-math.inf)
    v = torch.nn.functional.pad(v, (0, 0, 0, rest))
    heads, q_len = scores.shape[:2]
    lanes = scores.reshape(heads, q_len, -1, 32)
    top = lanes.amax(2)
    lowest = {"empty": -math.inf, "floor": 0.0}.get(how, -3e38)
    weights = torch.exp(lanes - top.clamp(min=-3e38)[:, :, None])
    weight = weights.sum(2)
    values = v.reshape(heads, 1, -1, 32, v.shape[-1])
    total = (weights[..., None] * values).sum(2)
    for step in (16, 8, 4, 2, 1):
        other = torch.arange(32) ^ step
        higher = torch.maximum(top, top[..., other]).clamp(min=lowest)
        mend = torch.exp(top - higher) if how != "never" else torch.ones_like(top)
        if how == "upside down":
            mend = torch.exp(higher - top)
        if how == "own":
            weight, total = (
                (weight + weight[..., other]) * mend,
                (total + total[..., other, :]) * mend[..., None],
            )
        elif how == "weight first":
            weight = weight * mend + (weight * mend)[..., other]
            total = (total + total[..., other, :]) * mend[..., None]
        elif how == "raw":
            weight = weight * mend + weight[..., other]
            total = total * mend[..., None] + total[..., other, :]
        elif how == "crossed":
            weight = weight * mend[..., other] + weight[..., other] * mend
            total = (
                total * mend[..., other, None] + total[..., other, :] * mend[..., None]
            )
        else:
            ones = torch.ones_like(mend)
            of_weight = ones if how == "weight" else mend
            of_total = ones if how == "total" else mend
            mended = weight * of_weight, total * of_total[..., None]
            weight = mended[0] + mended[0][..., other]
            total = mended[1] + mended[1][..., other, :]
        top = top if how == "top" else higher
    # A thread stores the elements d with d % 32 == its lane.
    d = torch.arange(total.shape[-1])
    return {"out": total[..., d % 32, d] / weight[..., d % 32]}


WRONG_RESCALE = Exercise(
    id="wrong_rescale",
    stem=STEM,
    title="The merge that passed its test",
    kind="detective",
    points=20,
    language="cuda",
    entry="kernel",
    name="wrong_rescale",
    source="autograder/answers/flash_attention/wrong_rescale.cu",
    goal="Mend a kernel that splits the keys of a query over a warp's lanes, and "
    "merges what they found.",
    requirements=(
        "Blocks of 32 threads, a query each; right for every kv_len of 1 and more, and "
        "for scores however high or low.",
        "Lanes that have no key at all take part in the merge, with weight 0.",
    ),
    problem=_detective_problem,
    reference=reference,
    cases=(
        case_of(6, 64),
        case_of(3, 77),
        case_of(5, 20),
        case_of(1, 1),
        case_of(4, 96, "rising"),
        case_of(4, 64, "large"),
        case_of(3, 21, "low"),
    ),
    hidden=lambda generator: (
        case_of(1 + n % 4, 1 + case.sizes["kv_len"], case.regime)
        for n, case in enumerate(hidden_shapes(generator))
    ),
    tolerance=TOLERANCE,
    near_misses=(
        NearMiss(
            "floor that is a score",
            lambda arguments: _merged(arguments, "floor"),
            "Where all scores are far below 0 every weight becomes 0, and the output 0 "
            "/ 0: what stands under the maximum must be below every score, -FLT_MAX.",
        ),
        NearMiss(
            "as it was",
            lambda arguments: _merged(arguments, "own"),
            "What comes from the other lane is still multiplied by this lane's factor: "
            "it is relative to the other lane's maximum, and needs that lane's.",
        ),
        NearMiss(
            "never mended",
            lambda arguments: _merged(arguments, "never"),
            "Nothing is rescaled: two lanes' sums are relative to two maxima, and are "
            "added as if they were to one.",
        ),
        NearMiss(
            "weight not rescaled",
            lambda arguments: _merged(arguments, "weight"),
            "The weighted values are rescaled and the weights' sum is not: both are "
            "relative to the maximum.",
        ),
        NearMiss(
            "lanes without keys",
            lambda arguments: _merged(arguments, "empty"),
            "Two lanes that have no key meet, and -INFINITY minus -INFINITY is NaN: "
            "keep the floor of -FLT_MAX under the maximum.",
        ),
        NearMiss(
            "values not rescaled",
            lambda arguments: _merged(arguments, "total"),
            "The weights' sum is rescaled and the weighted values are not: both are "
            "relative to the maximum.",
        ),
        NearMiss(
            "weight alone mended in time",
            lambda arguments: _merged(arguments, "weight first"),
            "The weights' sum is mended before the exchange, and the weighted values "
            "still after it: what comes from the other lane needs that lane's factor.",
        ),
        NearMiss(
            "other not mended",
            lambda arguments: _merged(arguments, "raw"),
            "This lane's own sums are mended, and what comes from the other lane is "
            "not: it needs that lane's factor, exp(other - higher). Or send what is "
            "mended already.",
        ),
        NearMiss(
            "crossed",
            lambda arguments: _merged(arguments, "crossed"),
            "The two factors have changed places: exp(top - higher) is for this lane's "
            "own sums, exp(other - higher) for those that come from the other lane.",
        ),
        NearMiss(
            "maximum not kept",
            lambda arguments: _merged(arguments, "top"),
            "The sums are relative to the common maximum, and top is still the lane's "
            "own: the next round mends them once more. End with top = higher.",
        ),
        NearMiss(
            "upside down",
            lambda arguments: _merged(arguments, "upside down"),
            "The factor is upside down: a larger maximum makes what was there smaller, "
            "exp(top - higher), not exp(higher - top).",
        ),
    ),
    hints=(
        "Give all keys the same score, and the kernel is right. Give one key a higher "
        "score. Which lanes' contributions are then multiplied by what?",
        "Each lane's sums are relative to its own maximum. `mend` takes them to the "
        "common one, and it is a lane's own factor: what a neighbour sends needs the "
        "neighbour's.",
        "Mend first, exchange then: mine = weight * mend, and weight becomes mine plus "
        "the other lane's mine, by __shfl_xor_sync; the same for each sum[d].",
    ),
    onward="The same merge joins blocks that share a long row of keys: chapter 10's "
    "decode.",
    counts=(
        # A warp has a query, a lane a key: it asks for the query with each.
        moves({"q": 64, "k": 6, "v": 6}, writes=None, asked=True)
    ),
)
