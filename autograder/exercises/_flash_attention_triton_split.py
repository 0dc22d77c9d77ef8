"""Chapter 10: a split KV cache, whose pieces are weighed and put together."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from autograder.exercise import (
    Exercise,
    NearMiss,
    Tolerance,
)
from autograder.exercises._flash_attention_triton import (
    FACTOR,
    PRELUDE,
    STEM,
    made_in_triton,
)
from autograder.exercises._flash_attention_triton_cuts import (
    SPLITS,
)
from autograder.exercises._flash_attention_triton_decode import (
    FIRST,
    LARGE,
    SHORT,
    decode_hidden,
    decode_problem,
    decoded,
)
from autograder.totals import moves


def _overflowing(lse: torch.Tensor) -> torch.Tensor:
    weights = torch.exp(lse.float())
    return (weights / weights.sum(-1, keepdim=True)).double()


def _relative(lse: torch.Tensor) -> torch.Tensor:
    """Return the weights relative to the largest, which are right but for their sum."""
    return torch.exp(lse - lse.amax(-1, keepdim=True))


def _normalised(weights: torch.Tensor) -> torch.Tensor:
    return weights / weights.sum(-1, keepdim=True)


_LOGARITHMS = (
    "The logarithms themselves are taken for weights: a piece weighs exp(lse)."
)
_SMALLEST = (
    "The weights are not relative to the largest lse: exp overflows where logits are "
    "large, and an empty piece's lse is -inf. tl.exp(lse - tl.max(lse, 0))."
)
_ALIKE = (
    "All pieces weigh the same: a piece weighs exp(lse), the sum of its keys' "
    "exponentials."
)
_ONE = "out is one piece alone: all of them count, each with its weight."
_SUM = "The weights do not sum to 1: divide by their sum, tl.sum(weight, 0)."
# What a piece weighs by mistake, from lse (batch, heads, SPLITS).
_WEIGHTS: tuple[tuple[str, Callable[[torch.Tensor], torch.Tensor], str], ...] = (
    ("pieces averaged", lambda lse: torch.full_like(lse, 1 / SPLITS), _ALIKE),
    (
        "pieces with keys averaged",
        lambda lse: _normalised((lse > -math.inf) + 0.0),
        _ALIKE,
    ),
    (
        "powers of two",
        lambda lse: torch.softmax(lse * math.log(2), -1),
        "A piece weighs e^lse, and here it weighs 2^lse: lse is a natural logarithm, "
        "so take tl.exp.",
    ),
    ("logarithms for weights", _normalised, _LOGARITHMS),
    (
        "logarithms from the largest",
        lambda lse: _normalised(lse - lse.amax(-1, keepdim=True)),
        _LOGARITHMS,
    ),
    (
        "overflow",
        _overflowing,
        "exp(lse) overflows where logits are large: take exp(lse - the largest lse), "
        "and what is subtracted divides out.",
    ),
    (
        "relative to the smallest",
        lambda lse: _normalised(torch.exp((lse - lse.amin(-1, keepdim=True)).float())),
        _SMALLEST,
    ),
    (
        "relative to the mean",
        lambda lse: _normalised(torch.exp((lse - lse.mean(-1, keepdim=True)).float())),
        _SMALLEST,
    ),
    (
        "relative to the sum",
        lambda lse: _normalised(torch.exp((lse - lse.sum(-1, keepdim=True)).float())),
        _SMALLEST,
    ),
    (
        "upside down",
        lambda lse: _normalised(torch.exp((lse.amax(-1, keepdim=True) - lse).float())),
        "The piece with the smallest lse weighs most: exp(lse - the largest), not the "
        "other way round.",
    ),
    (
        "divided by the weights",
        lambda lse: (1 / _relative(lse)) / _relative(lse).sum(-1, keepdim=True),
        "The parts are divided by their weights: a part times its weight, and the sum "
        "of both.",
    ),
    (
        "weights squared",
        lambda lse: torch.softmax(2 * lse, -1),
        "The weights are squared: a piece weighs exp(lse), once.",
    ),
    (
        "empty pieces count",
        lambda lse: torch.softmax(lse.nan_to_num(neginf=0.0), -1),
        "A piece that saw no key takes part: its lse is -inf, and exp of that is 0, "
        "as it should be.",
    ),
    ("first piece", lambda lse: torch.ones_like(lse).cumsum(-1) == 1, _ONE),
    ("last piece", lambda lse: torch.ones_like(lse).cumsum(-1) == SPLITS, _ONE),
    (
        "heaviest piece",
        lambda lse: lse == lse.amax(-1, keepdim=True),
        "out is the heaviest piece alone: all of them count, each with its weight.",
    ),
    (
        "pieces added",
        torch.ones_like,
        "The pieces are added as they are: each is a mean of its own keys' values, and "
        "weighs exp(lse) among all.",
    ),
    ("weights not normalised", _relative, _SUM),
    ("divided by the number", lambda lse: _relative(lse) / SPLITS, _SUM),
    (
        "normalised twice",
        lambda lse: _relative(lse) / _relative(lse).sum(-1, keepdim=True) ** 2,
        "The weights are divided by their sum twice.",
    ),
    (
        "divided by the logarithms",
        lambda lse: _relative(lse) / lse.sum(-1, keepdim=True),
        "The weights are divided by the sum of the logarithms: by their own.",
    ),
)


DECODE_SPLIT_KV = Exercise(
    id="decode_split_kv",
    stem=STEM,
    title="The pieces put together",
    kind="core",
    points=10,
    language="python",
    entry="function",
    name="decode_split_kv",
    source="solutions/flash_attention_triton/split.py",
    goal="Put the pieces' outputs together by their log-sum-exp.",
    requirements=(
        "The whole is the pieces' outputs weighed by exp(lse), normalised.",
        "No exponential overflows; an empty piece, whose lse is -inf, weighs nothing.",
    ),
    problem=decode_problem,
    reference=decoded,
    cases=(*FIRST, LARGE, SHORT),
    hidden=decode_hidden,
    tolerance=Tolerance(factor=FACTOR, scale=lambda a: decoded(a, absolute=True)),
    near_misses=tuple(
        NearMiss(name, partial(decoded, weigh=weigh), message)
        for name, weigh, message in _WEIGHTS
    ),
    hints=(
        "Each piece is a softmax over its own keys, right but for its normalisation. "
        "exp(lse) is what it was divided by.",
        "The weights are exp(lse - max of lse): the largest is 1, none overflows, and "
        "what they are relative to divides out.",
        "weight = tl.exp(lse - tl.max(lse, 0)); out = tl.sum(part * weight[:, None], "
        "0) / tl.sum(weight, 0).",
    ),
    onward="Let the program that finishes last combine the pieces: what is saved?",
    counts=(
        # And 4% for what the pieces hand over.
        moves({"q": SPLITS, "lengths": 2 * SPLITS}, writes=None, times=1.09)
    ),
    structure=(
        made_in_triton(
            "tl.load",
            "tl.store",
            message="The values are right, and it is not your Triton kernel alone that "
            "made them: the weights and the sum over pieces belong into it.",
        ),
    ),
    needs=("absorb_tile", "decode_pieces"),
    prelude=PRELUDE,
)
