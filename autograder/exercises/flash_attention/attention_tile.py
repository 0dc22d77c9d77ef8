"""Attention a tile of keys at a time, in torch."""

from __future__ import annotations

import torch

from autograder.exercise import Arguments, Case, Exercise, Output, Outputs, Problem
from autograder.exercises.flash_attention.shared import (
    BY_HAND,
    PRELUDE,
    TOLERANCE,
    case_of,
    draw_heads,
    reference,
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


def _problem(case: Case, generator: torch.Generator) -> Problem:
    q, k, v = draw_heads(case, generator, head_dim=16)
    return Problem(
        {"q": q, "k": k, "v": v, "tile": case.sizes["tile"]},
        {
            "out": Output(tuple(q.shape), torch.float32),
            "linear": Output((), torch.bool),
        },
    )


def _reference(arguments: Arguments) -> Outputs:
    return {**reference(arguments), "linear": torch.tensor(True)}


ATTENTION_TILE = Exercise(
    id="attention_tile",
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
    problem=_problem,
    reference=_reference,
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
    tolerance=TOLERANCE,
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
