"""What the exercises of chapter 9 share: cases, the right answer, and its mistakes.

One simulation of the loop over tiles, in fp32, makes most of the mistakes: each is the
right loop with one step changed.

The tolerance. A score of fp32 is a sum of D products and errs by a few eps of the
largest of their sums of magnitudes, S; a weight is the exponential of scores and errs
relatively by as much; an output is a mean of values under these weights. So an output
may err by c eps (1 + S) max_j |v_j|: far less than what fp16 shows, where scores
are of the order of 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    NearMiss,
    Output,
    Outputs,
    Tolerance,
)

STEM = "flash_attention"
HEAD_DIM = 64
QUERIES = 64  # of a block
Hidden = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]

_REGIMES = {
    "distinct": "normal values",
    "rising": "scores that rise",
    "large": "scores up to 10,000",
}


def case_of(q_len: int, kv_len: int, regime: str = "distinct", **more: int) -> Case:
    """Return a case of one shape, named as the learner reads it."""
    sizes = {"heads": 1, "q_len": q_len, "kv_len": kv_len, **more}
    words = [f"{q_len:,} queries", f"{kv_len:,} keys"]
    if sizes["heads"] > 1:
        words.append(f"{sizes['heads']} heads")
    if "offset" in sizes:
        words.append(f"offset {sizes['offset']}")
    return Case(", ".join([*words, _REGIMES[regime]]), sizes, regime)


def draw_heads(
    case: Case, generator: torch.Generator, head_dim: int = HEAD_DIM
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw queries, keys and values, (heads, length, head_dim) each."""
    heads, q_len, kv_len = (case.sizes[n] for n in ("heads", "q_len", "kv_len"))
    q = torch.randn(heads, q_len, head_dim, generator=generator)
    k = torch.randn(heads, kv_len, head_dim, generator=generator)
    v = torch.randn(heads, kv_len, head_dim, generator=generator)
    if case.regime == "large":
        # Nearly whole multiples of some hundreds: weights are 1 or 0, and no mistake
        # leaves denormals, whose ratio would tell nothing.
        q, k = (60.0 * (x.clamp(-1, 1).round() + 1e-3 * x) for x in (q, k))
    elif case.regime == "rising":
        # All queries lean to one side, and each key further than the one before.
        steps = torch.linspace(-1.0, 1.0, kv_len)[:, None]
        q[..., :8] = q[..., :8].abs() + 0.5
        k[..., :8] = k[..., :8].abs() * 3.0 * steps
    return q, k, v


def scale_of(arguments: Arguments) -> float:
    """Return the factor of the scores: 1 / sqrt(head_dim)."""
    return 1.0 / math.sqrt(tensor(arguments, "q").shape[-1])


def seen_by(arguments: Arguments) -> torch.Tensor | None:
    """Return which query sees which key; ``None`` where all see all."""
    if "seen" in arguments:
        return tensor(arguments, "seen")
    if "offset" not in arguments:
        return None
    q, k, offset = tensor(arguments, "q"), tensor(arguments, "k"), arguments["offset"]
    assert isinstance(offset, int)
    i = torch.arange(q.shape[-2], device=q.device)[:, None]
    return torch.arange(k.shape[-2], device=q.device) <= i + offset


def weights_of(arguments: Arguments) -> torch.Tensor:
    """Return the softmax in float64; a row that sees nothing is all zeros."""
    q, k = (tensor(arguments, n).double() for n in ("q", "k"))
    scores = q @ k.mT * scale_of(arguments)
    seen = seen_by(arguments)
    if seen is None:
        return torch.softmax(scores, -1)
    weights = torch.softmax(scores.masked_fill(~seen, -math.inf), -1)
    return torch.nan_to_num(weights, nan=0.0)


def reference(arguments: Arguments) -> Outputs:
    """Return softmax(scale q k^T) v in float64."""
    return {"out": weights_of(arguments) @ tensor(arguments, "v").double()}


def _error(arguments: Arguments) -> Outputs:
    q, k, v = (tensor(arguments, n).double() for n in ("q", "k", "v"))
    most = (q.abs() @ k.abs().mT).amax(-1, keepdim=True) * scale_of(arguments)
    # Of all values, and not of the row's own: a known mistake weighs others.
    return {"out": (1.0 + most) * v.abs().amax((-2, -1), keepdim=True).expand_as(q)}


TOLERANCE = Tolerance(factor=4.0, scale=_error)


def _half_error(arguments: Arguments) -> Outputs:
    weights = weights_of(arguments)
    v = tensor(arguments, "v").double()
    spread = (weights.square() @ v.square()).sqrt()
    return {"out": (weights @ v).abs() + 1.25 * spread}


# The output is rounded to fp16 (half a unit in the last place), and so is each weight,
# by 0.22 eps in the root mean square: their errors add like their squares, and 1.25 is
# over five times that.
HALF_TOLERANCE = Tolerance(factor=1.0, scale=_half_error)

# --- the loop over tiles, and what may go wrong in it ------------------------------

Mended = Literal["both", "none", "sum", "weight", "tile", "all"]


@dataclass(frozen=True)
class Loop:
    """The loop over tiles with at most one mistake in it.

    Args:
        tile: keys at a time.
        mended: what is made relative to the new maximum: ``both`` sums; ``none``; only
            one; ``tile``, the new tile's weights instead of the old sums; or ``all``,
            the sums after the new tile was added to them.
        scaled: the scores' factor, as a power of the right one: 0 none, 2 twice.
        padded: how many keys past the end count, with a score of 0; ``None``: as many
            as there is room for.
        hides: which keys are hidden before the maximum; ``None``: the right ones.
        late: hide only after the maximum was taken: ``all`` keys take part in it, or
            those of the tiles that some query of its ``block`` sees.
        guarded: whether a row that sees nothing gives 0, not NaN.
        based: what the weights are relative to: the maximum so far; the tile's own,
            which the next tile does not know of (``tile``); nothing (``zero``, where
            sums are mended by exp(top) alone, or ``none``, where they are mended as
            they should be).
        counted: whether the weights are added up at all.
        skips: with ``guarded`` not set, whether a block passes over what it does not
            see, and a row of weight NaN or 0 is given a share of 0.
        values: the name of what the weights are multiplied with.
        blank: the score of what is hidden in tiles that a block brings.
        half: round the weights to fp16.
    """

    tile: int
    mended: Mended = "both"
    scaled: int = 1
    padded: int | None = 0
    hides: Hidden | None = None
    late: Literal["", "all", "block"] = ""
    guarded: bool = True
    half: bool = False
    based: Literal["top", "tile", "zero", "none"] = "top"
    counted: bool = True
    skips: bool = False
    values: str = "v"
    blank: float = -math.inf

    def __call__(self, arguments: Arguments) -> Outputs:
        """Return what an answer with this mistake writes."""
        q, k, v = (tensor(arguments, n).float() for n in ("q", "k", self.values))
        scores = q @ k.mT * scale_of(arguments) ** self.scaled
        hidden = self._hidden(arguments, scores)
        rest = self._padding(k.shape[-2])
        if rest:
            scores = torch.nn.functional.pad(scores, (0, rest))
            v = torch.nn.functional.pad(v, (0, 0, 0, rest))
        top = torch.full_like(q[..., :1], -math.inf)
        weight, total = torch.zeros_like(top), torch.zeros_like(q)
        for start in range(0, scores.shape[-1], self.tile):
            part = scores[..., start : start + self.tile]
            gone = hidden[..., start : start + self.tile]
            if self.late != "all":
                unread = (
                    gone if not self.late else gone & self._beyond(arguments, start)
                )
                if self.blank != -math.inf:
                    part = part.masked_fill(unread, self.blank)
                    unread = self._beyond(arguments, start)
                part = part.masked_fill(unread, -math.inf)
            higher = torch.maximum(top, part.amax(-1, keepdim=True))
            if self.based == "tile":
                higher = part.amax(-1, keepdim=True)
            base = higher.masked_fill(higher == -math.inf, 0.0)
            if not self.guarded:
                base = higher
            if self.skips:
                base = base.masked_fill(self._beyond(arguments, start), 0.0)
            if self.based == "zero":
                base = torch.zeros_like(base)
            mend = torch.exp(top - base)
            p = torch.exp(part - (0.0 if self.based == "none" else base))
            if self.late:
                p = p.masked_fill(gone, 0.0)
            if self.mended == "tile":
                p = p * mend
            weight = weight * (mend if self.mended in ("both", "weight") else 1.0)
            total = total * (mend if self.mended in ("both", "sum") else 1.0)
            weight = weight + p.sum(-1, keepdim=True) * self.counted
            if self.half:
                p = p.half().float()
            total = total + p @ v[..., start : start + self.tile, :]
            if self.mended == "all":
                weight, total = weight * mend, total * mend
            top = higher
        share = 1.0 / weight
        if self.skips:
            share = share.masked_fill(~(weight > 0.0), 0.0)
        if self.guarded:
            share = share.masked_fill(weight == 0.0, 0.0)
        return {"out": total * share}

    def _padding(self, keys: int) -> int:
        room = -keys % self.tile
        return room if self.padded is None else min(room, self.padded)

    def _beyond(self, arguments: Arguments, start: int) -> torch.Tensor:
        """Say for each query whether its block stops before a tile."""
        q, offset = tensor(arguments, "q"), arguments.get("offset", 0)
        assert isinstance(offset, int)
        i = torch.arange(q.shape[-2], device=q.device)[:, None]
        last = (i // QUERIES * QUERIES + QUERIES).clamp(max=q.shape[-2]) - 1
        return last + offset < start

    def _hidden(self, arguments: Arguments, scores: torch.Tensor) -> torch.Tensor:
        if self.hides is None:
            seen = seen_by(arguments)
        else:
            offset = arguments.get("offset", 0)
            assert isinstance(offset, int)
            i = torch.arange(scores.shape[-2], device=scores.device)[:, None]
            j = torch.arange(scores.shape[-1], device=scores.device)
            seen = ~self.hides(i, j, offset)
        rest = self._padding(scores.shape[-1])
        hidden = torch.zeros_like(scores, dtype=torch.bool)
        if seen is not None:
            hidden |= ~seen
        return torch.nn.functional.pad(hidden, (0, rest))


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
    again = (
        "The scores are scaled twice: once is 1 / sqrt(head_dim)."
        if scaled
        else "The scores are scaled twice: `query` holds the scaled queries already."
    )
    once = (
        NearMiss(
            "scale forgotten",
            loop(scaled=0),
            "The scores are not scaled: they are multiplied by 1 / sqrt(head_dim) "
            "before the maximum.",
        ),
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
        NearMiss(
            "all rescaled",
            loop(mended="all"),
            "The rescale comes too late: it is multiplied onto the new tile as well, "
            "which is relative to the new maximum already. First the old sums times "
            "mend, then the tile.",
        ),
        NearMiss(
            "maximum of the tile alone",
            loop(based="tile"),
            "Small scores come out right, and large ones overflow: the maximum is that "
            "of all keys so far. Begin it with top, not anew in each tile.",
        ),
        NearMiss(
            "not relative to the maximum",
            loop(based="none"),
            "The weights are not relative to the maximum: a weight is exp(score - "
            "higher), and higher is the largest score so far.",
        ),
        NearMiss(
            "weights never added",
            loop(counted=False),
            "The output is divided by 0: weight, the sum of the weights, stays what it "
            "was at the start. Add each tile's weights to it.",
        ),
        NearMiss("nothing but NaN", _nothing_but_nan, _NAN_SAID),
        NearMiss(
            "keys for values",
            loop(values="k"),
            "The weights are multiplied with the keys: the output is a mean of values.",
        ),
        NearMiss("scale twice", loop(scaled=2), again),
        *(once if scaled else ()),
    )


def tail_mistake(tile: int, *, half: bool = False) -> NearMiss:
    """Return the mistake of counting the keys past the end."""
    return NearMiss(
        "wrong tail",
        Loop(tile, padded=None, half=half, guarded=False),
        "The last tile has fewer keys than room, and the empty places are counted: "
        "their score is 0, and exp(0 - top) is not 0. Give keys from kv_len on a "
        "score of -INFINITY.",
    )


def one_key_too_many(tile: int) -> NearMiss:
    """Return the mistake of counting the first key past the end."""
    return NearMiss(
        "one key too many",
        Loop(tile, padded=1),
        "One key past the end is counted, key kv_len, with a score of 0: the keys are "
        "0 to kv_len - 1, so hide where start + j >= kv_len.",
    )


def hidden_shapes(generator: torch.Generator) -> Iterator[Case]:
    """Draw awkward shapes: inside a tile, around several, rising, large."""

    def drawn(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    yield case_of(drawn(2, 60), drawn(2, 15))
    yield case_of(drawn(65, 120), drawn(65, 140), heads=drawn(2, 4))
    yield case_of(drawn(5, 40), 16 * drawn(2, 8), "rising")
    yield case_of(drawn(5, 80), drawn(20, 90), "large")


def kernel_problem(
    case: Case,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
) -> tuple[dict[str, torch.Tensor | int | float | None], dict[str, Output]]:
    """Return a kernel's arguments, in the order of its parameters, and its output."""
    q, k, v = (t.to(dtype) for t in draw_heads(case, generator))
    arguments: dict[str, torch.Tensor | int | float | None] = {
        "q": q,
        "k": k,
        "v": v,
        "out": None,
        "q_len": q.shape[1],
        "kv_len": k.shape[1],
    }
    if "offset" in case.sizes:
        arguments["offset"] = case.sizes["offset"]
    arguments["scale"] = 1.0 / math.sqrt(HEAD_DIM)
    return arguments, {"out": Output(tuple(q.shape), dtype)}
