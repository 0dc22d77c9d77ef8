"""Chapter 9: attention a tile of keys at a time, in torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    NearMiss,
    Output,
    Outputs,
    Problem,
)
from autograder.exercises._flash_attention import (
    STEM,
    TOLERANCE,
    case_of,
    draw_heads,
    hidden_shapes,
    reference,
)
from autograder.exercises._flash_attention_loop import Loop
from autograder.exercises._flash_attention_mistakes import loop_mistakes
from autograder.exercises._flash_attention_reference import (
    BY_HAND,
    PRELUDE,
    attend_by,
    scores_of,
)

_TILED = (
    PRELUDE
    + '''
import kernelwright as kw


def __adapt__(answer, q, k, v, tile):
    """Call the answer; where the scores are many, see what memory it took."""
    out = answer(q, k, v, tile)
    linear = torch.tensor(True, device=q.device)
    if q.shape[-2] * k.shape[-2] >= 2**18:
        scores = 4 * q[..., 0].numel() * k.shape[-2]
        use = kw.peak_memory(answer, q, k, v, tile, warm_up=False)
        linear = torch.tensor(use.peak_bytes < scores // 2, device=q.device)
    return out, linear
'''
)


def tiled_case(q_len: int, kv_len: int, tile: int, regime: str = "distinct") -> Case:
    """Return a case with a tile's size in its name."""
    case = case_of(q_len, kv_len, regime, tile=tile)
    head, _, regime_words = case.name.rpartition(", ")
    return Case(f"{head}, tiles of {tile}, {regime_words}", case.sizes, regime)


def _tile_problem(case: Case, generator: torch.Generator) -> Problem:
    q, k, v = draw_heads(case, generator, head_dim=16)
    return Problem(
        {"q": q, "k": k, "v": v, "tile": case.sizes["tile"]},
        {
            "out": Output(tuple(q.shape), torch.float32),
            "linear": Output((), torch.bool),
        },
    )


def _tile_reference(arguments: Arguments) -> Outputs:
    return {**reference(arguments), "linear": torch.tensor(True)}


def _tile_of(arguments: Arguments) -> int:
    tile = arguments["tile"]
    assert isinstance(tile, int)
    return tile


def _looped(miss: NearMiss) -> NearMiss:
    """Give a mistake of the loop the case's own tile, and the second output."""
    found = miss.output

    def output(arguments: Arguments) -> Outputs:
        own = found
        if isinstance(found, Loop):
            own = replace(found, tile=_tile_of(arguments))
        return {**own(arguments), "linear": torch.tensor(True)}

    return NearMiss(miss.name, output, miss.message)


_SOFTMAX_A_TILE = (
    "Each tile has a softmax of its own, and all tiles count alike: a tile of low "
    "scores must weigh less. Add exponentials, and divide once, at the end."
)
_OF_THE_TILE = (
    NearMiss(
        "a softmax in each tile",
        lambda arguments: _mean_of_softmaxes(arguments),
        _SOFTMAX_A_TILE,
    ),
    NearMiss(
        "a softmax in each tile, mended",
        Loop(1, shared="both"),
        _SOFTMAX_A_TILE,
    ),
    NearMiss(
        "each tile divided",
        Loop(1, shared="sum"),
        "Each tile's weighted values are divided by its weights before they are added: "
        "divide once, behind the loop.",
    ),
    NearMiss(
        "all queries' weights",
        Loop(1, pooled=True),
        "weight adds up the weights of all queries: each has a sum of its own, "
        "sum(dim=-1, keepdim=True).",
    ),
    NearMiss(
        "divided by the root of the tile",
        lambda arguments: _root_of_the_tile(arguments),
        "The scores are divided by the square root of the tile's size: it is that of "
        "head_dim, q.shape[-1].",
    ),
)


def _mean_of_softmaxes(arguments: Arguments) -> Outputs:
    v, tile = tensor(arguments, "v"), _tile_of(arguments)
    pairs = zip(scores_of(arguments).split(tile, -1), v.split(tile, -2), strict=True)
    made = torch.stack([torch.softmax(s, -1) @ values for s, values in pairs])
    return {"out": made.mean(0)}


def _root_of_the_tile(arguments: Arguments) -> Outputs:
    scores = scores_of(arguments, 0) / math.sqrt(_tile_of(arguments))
    return attend_by(arguments, torch.softmax(scores, -1))


def _tile_hidden(generator: torch.Generator) -> Iterator[Case]:
    for case in hidden_shapes(generator):
        tile = int(torch.randint(1, 40, (), generator=generator))
        q_len, kv_len = case.sizes["q_len"], case.sizes["kv_len"]
        yield tiled_case(q_len, kv_len, tile, case.regime)


ATTENTION_TILE = Exercise(
    id="attention_tile",
    stem=STEM,
    title="A tile of keys at a time",
    kind="core",
    points=15,
    language="python",
    entry="function",
    name="attention_tile",
    source="solutions/flash_attention/reference.py",
    goal="Compute the same output without the matrix of scores: take the keys tile by "
    "tile into a running maximum, weight and sum.",
    requirements=(
        "No tensor of all scores exists: memory grows with the length, not with its "
        "square.",
        "Right for every tile size, and for scores in any order, however high or low: "
        "up to 10,000, or all near -20,000.",
    ),
    problem=_tile_problem,
    reference=_tile_reference,
    cases=(
        tiled_case(12, 40, 8),
        tiled_case(9, 33, 8),
        tiled_case(512, 512, 32),
        tiled_case(1, 5, 1),
        tiled_case(7, 5, 64),
        tiled_case(20, 64, 16, "rising"),
        tiled_case(20, 50, 16, "large"),
        tiled_case(9, 21, 8, "low"),
    ),
    hidden=_tile_hidden,
    tolerance=TOLERANCE,
    near_misses=(
        *(_looped(miss) for miss in loop_mistakes(1, scaled=True)),
        *(_looped(miss) for miss in _OF_THE_TILE),
        NearMiss(
            "all scores at once",
            lambda arguments: {**reference(arguments), "linear": torch.tensor(False)},
            "The output is right, and a tensor as large as the matrix of all scores "
            "existed on the way: compute the scores of one tile only, in the loop.",
        ),
    ),
    hints=(
        "What top, weight and total say is relative to the old maximum. When a tile "
        "brings a higher one, how is something relative to the old made relative to "
        "the new?",
        "exp(s - old) becomes exp(s - new) by a factor of exp(old - new), whatever s "
        "is. So weight and total are multiplied by it, before the tile is added.",
        "higher = torch.maximum(top, scores.amax(dim=-1, keepdim=True)); mend = "
        "torch.exp(top - higher); weights = torch.exp(scores - higher); weight = "
        "weight * mend + weights.sum(dim=-1, keepdim=True); likewise total with "
        "weights @ values; top = higher.",
    ),
    onward="Which tile size is fastest here, and which takes the least memory?",
    structure=(BY_HAND,),
    prelude=_TILED,
)
