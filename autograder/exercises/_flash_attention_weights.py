"""Chapter 9's rows of scores that become weights, tile by tile, two lanes a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    NearMiss,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)
from autograder.exercises._flash_attention import STEM
from autograder.totals import moves

_KEYS = 64  # of a tile, as the stub says
_SCALE = 0.125
_FACTOR = 8.0


_COLUMNS = torch.arange(_KEYS)


def _rows_case(rows: int, kv_len: int, regime: str = "distinct") -> Case:
    said = {
        "distinct": "normal scores",
        "rising": "scores that rise",
        "low": "scores near -2,000",
    }[regime]
    name = f"{rows} rows, {kv_len} keys, {said}"
    return Case(name, {"rows": rows, "kv_len": kv_len}, regime)


def _weigh_problem(case: Case, generator: torch.Generator) -> Problem:
    rows, kv_len = case.sizes["rows"], case.sizes["kv_len"]
    tiles = -(-kv_len // _KEYS)
    scores = 8 * torch.randn(tiles, rows, _KEYS, generator=generator)
    if case.regime == "rising":
        scores += 24.0 * torch.arange(tiles)[:, None, None]
    elif case.regime == "low":
        scores -= 2000.0 / _SCALE
    outputs = {
        "weights": Output((tiles, rows, _KEYS), torch.float16),
        "mends": Output((tiles, rows), torch.float32),
        "totals": Output((rows,), torch.float32),
    }
    return Problem(
        {
            "scores": scores,
            **dict.fromkeys(outputs),
            "rows": rows,
            "kv_len": kv_len,
            "scale": _SCALE,
        },
        outputs,
        Launch((rows // 16,), (32,)),
    )


def _logits(
    arguments: Arguments,
    power: int = 1,
    hidden: bool = True,
    blank: float = -math.inf,
    keys: torch.Tensor = _COLUMNS,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scaled scores, and each tile's maximum so far: (tiles, rows).

    Args:
        arguments: of the exercise.
        power: of the scale.
        hidden: whether what lies behind the last key is hidden.
        blank: the score of what is hidden.
        keys: which key of the tile each column is taken for.
    """
    kv_len = arguments["kv_len"]
    assert isinstance(kv_len, int)
    scores = tensor(arguments, "scores").double() * _SCALE**power
    if hidden:
        key = keys.to(scores.device)
        for tile in range(len(scores)):
            scores[tile, :, tile * _KEYS + key >= kv_len] = blank
    return scores, scores.amax(2).cummax(0).values


def _weighed(
    arguments: Arguments,
    *,
    power: int = 1,
    hidden: bool = True,
    blank: float = -math.inf,
    keys: torch.Tensor = _COLUMNS,
    mended: Literal["before", "after", ""] = "before",
    upside_down: bool = False,
    top: Callable[[torch.Tensor], torch.Tensor] | None = None,
    begins: float = -math.inf,
    relative: bool = True,
) -> Outputs:
    """Turn scores into weights, in float64, with the known mistakes.

    Args:
        arguments: of the exercise.
        power: of the scale.
        hidden: whether what lies behind the last key is hidden.
        blank: the score of what is hidden.
        keys: which key of the tile each column is taken for.
        mended: when the sum of the weights is brought to the new maximum.
        upside_down: whether the factor is.
        top: each tile's maximum, of the scores; ``None``: the right one.
        begins: what the maximum is before the first tile.
        relative: whether weights are relative to the maximum.
    """
    scores, highest = _logits(arguments, power, hidden, blank, keys)
    if top is not None:
        highest = top(scores)
    highest = highest.clamp(min=begins)
    weights = torch.exp(scores - (highest[:, :, None] if relative else 0.0))
    before = torch.cat([torch.full_like(highest[:1], begins), highest[:-1]])
    mends = torch.exp(highest - before if upside_down else before - highest)
    return {
        "weights": weights,
        "mends": mends,
        "totals": _total(weights, mends, mended),
    }


def _total(
    weights: torch.Tensor, mends: torch.Tensor, mended: str = "before"
) -> torch.Tensor:
    """Add up the weights of all tiles."""
    total = torch.zeros_like(mends[0])
    for tile, mend in zip(weights, mends, strict=True):
        total = total * (mend if mended == "before" else 1.0) + tile.sum(1)
        total = total * (mend if mended == "after" else 1.0)
    return total


def _of_the_tile(scores: torch.Tensor) -> torch.Tensor:
    return scores.amax(2)


def _of_firsts(scores: torch.Tensor) -> torch.Tensor:
    """Return the maximum of the first key of each pair."""
    return scores[..., ::2].amax(2).cummax(0).values


def _of_the_warp(scores: torch.Tensor) -> torch.Tensor:
    """Return the maximum of all 16 rows of a warp."""
    rows = scores.amax(2).cummax(0).values.unflatten(1, (-1, 16))
    most: torch.Tensor = rows.amax(2, keepdim=True)
    return most.expand_as(rows).flatten(1)


def _scaled_in_the_exponent(arguments: Arguments) -> Outputs:
    """Return what comes where weights are scaled and factors are not."""
    made = _weighed(arguments)
    mends = _weighed(arguments, power=0)["mends"]
    return {**made, "mends": mends, "totals": _total(made["weights"], mends)}


def _never_moved(arguments: Arguments, relative_to: str) -> Outputs:
    """Return what comes where top stays -infinity, and weights are relative to it.

    Args:
        arguments: of the exercise.
        relative_to: ``top``, or ``higher``, which is then the tile's own maximum.
    """
    made = _weighed(arguments, top=_of_the_tile)
    weights, mends = made["weights"], torch.zeros_like(made["mends"])
    if relative_to == "top":
        weights = torch.exp(_logits(arguments)[0] + math.inf)
    return {"weights": weights, "mends": mends, "totals": _total(weights, mends)}


def _moved_first(arguments: Arguments) -> Outputs:
    made = _weighed(arguments, mended="")
    return {**made, "mends": torch.ones_like(made["mends"])}


def _exchanged(arguments: Arguments) -> Outputs:
    made = _weighed(arguments)
    pairs = made["weights"].unflatten(2, (-1, 2))
    return {**made, "weights": pairs.flip(-1).flatten(2)}


def _summed_twice(arguments: Arguments) -> Outputs:
    """Return what comes of adding the neighbour's sum in every tile and at the end."""
    made = _weighed(arguments)
    total = torch.zeros_like(made["totals"])
    for weights, mend in zip(made["weights"], made["mends"], strict=True):
        total = 2 * total * mend + weights.sum(1)
    return {**made, "totals": total}


def _first_of_a_pair(arguments: Arguments) -> Outputs:
    """Return what comes where both keys of a pair are seen with the first of them."""
    kv_len = arguments["kv_len"]
    assert isinstance(kv_len, int)
    return _weighed({**arguments, "kv_len": kv_len + kv_len % 2})


def _next_pairs(arguments: Arguments) -> Outputs:
    """Return what comes of reading row[c], and of writing at packed[2 * c]."""
    key = torch.arange(_KEYS)
    read = key // 4 * 2 + key % 4
    scores = tensor(arguments, "scores")
    return _weighed({**arguments, "scores": scores[..., read.to(scores.device)]})


def _alone(arguments: Arguments, stored: int) -> Outputs:
    """Return what two lanes make of a row where neither asks the other.

    Args:
        arguments: of the exercise.
        stored: whose factor is left in memory, the first lane's or the second's.
    """
    scores, _ = _logits(arguments)
    lane = torch.arange(_KEYS, device=scores.device) // 2 % 2
    made = torch.zeros_like(scores)
    totals = torch.zeros_like(scores[0, :, 0])
    for h in (0, 1):
        own = scores.masked_fill(lane != h, -math.inf)
        top = own.amax(2).cummax(0).values
        before = torch.cat([torch.full_like(top[:1], -math.inf), top[:-1]])
        mends = torch.exp(before - top)
        weights = torch.exp(own - top[:, :, None])
        made = torch.where(lane == h, weights, made)
        total = torch.zeros_like(totals)
        for tile, mend in zip(weights, mends, strict=True):
            total = total * mend + tile.sum(1)
        totals = totals + total
        if h == stored:
            kept = mends
    return {"weights": made, "mends": kept, "totals": totals}


def _weigh_scale(arguments: Arguments) -> Outputs:
    """Return what each may err by: the exponent's rounding is the result's error."""
    right = _weighed(arguments)
    scores, _ = _logits(arguments)
    most = 1.0 + scores.nan_to_num(0.0, 0.0, 0.0).abs().amax((0, 2))
    # Weights are rounded to fp16: that is all that shows of them.
    return {
        "weights": right["weights"] * 1.25 / _FACTOR,
        "mends": right["mends"] * most,
        "totals": right["totals"] * most,
    }


def _weigh_hidden(generator: torch.Generator) -> Iterator[Case]:
    def drawn(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    yield _rows_case(16 * drawn(1, 4), drawn(2, 60))
    yield _rows_case(16, drawn(65, 190))
    yield _rows_case(32, drawn(129, 250), "rising")
    yield _rows_case(16, drawn(65, 128), "low")


WEIGH_ROWS = Exercise(
    id="weigh_rows",
    stem=STEM,
    title="Scores become weights, two lanes a row",
    kind="core",
    points=10,
    language="cuda",
    entry="kernel",
    name="weigh_rows",
    source="solutions/flash_attention/weigh.cu",
    goal="Between the two products: turn a tile of scores in shared memory into "
    "weights in the same room, and say what brings earlier sums to them.",
    requirements=(
        "A warp has 16 rows; two lanes share a row, every other pair of columns each.",
        "Scores are scaled; columns from `kv_len` on weigh nothing, however low the "
        "others are.",
        "Weights become fp16, relative to the row's maximum so far; `mends` gets what "
        "brings earlier ones to it.",
    ),
    problem=_weigh_problem,
    reference=_weighed,
    cases=(
        _rows_case(16, 128),
        _rows_case(32, 77),
        _rows_case(16, 64),
        _rows_case(16, 1),
        _rows_case(48, 202, "rising"),
        _rows_case(16, 70, "low"),
    ),
    hidden=_weigh_hidden,
    tolerance=Tolerance(factor=_FACTOR, scale=_weigh_scale),
    near_misses=(
        NearMiss(
            "places of a finite score",
            partial(_weighed, blank=-1e3),
            "Places past the end have a low score, and where those of the keys are "
            "lower still they take all the weight: -INFINITY alone is below all.",
        ),
        NearMiss(
            "maximum begins at 0",
            partial(_weighed, begins=0.0),
            "The maximum begins at 0, and where all scores of a row are far below it "
            "every weight is 0: it begins at -INFINITY.",
        ),
        NearMiss(
            "scale forgotten",
            partial(_weighed, power=0),
            "The scores are not scaled: they are multiplied by scale before the "
            "maximum.",
        ),
        NearMiss(
            "scale twice",
            partial(_weighed, power=2),
            "The scores are scaled twice: once is scale.",
        ),
        NearMiss(
            "wrong tail",
            partial(_weighed, hidden=False),
            "The last tile has fewer keys than room, and the empty places are counted. "
            "Give keys from kv_len on a score of -INFINITY: exp makes that 0.",
        ),
        NearMiss(
            "hidden scores of 0",
            partial(_weighed, blank=0.0),
            "Keys from kv_len on have a score of 0, and exp(0 - top) is a weight like "
            "any other: give them -INFINITY.",
        ),
        *(
            NearMiss(
                f"columns of {said}",
                partial(_weighed, keys=keys),
                "A lane compares other keys with kv_len than it holds: its pair c is "
                "columns 4 c + 2 h and the one after it, of key start on.",
            )
            for said, keys in (
                ("4 c + h", _COLUMNS // 4 * 4 + _COLUMNS // 2 % 2 + _COLUMNS % 2),
                ("4 c", _COLUMNS // 4 * 4 + _COLUMNS % 2),
                ("2 c + 2 h", _COLUMNS // 4 * 2 + _COLUMNS % 4),
            )
        ),
        NearMiss(
            "second of a pair past the end",
            _first_of_a_pair,
            "Where kv_len is odd, the second key of the last pair does not exist: it "
            "needs a comparison of its own, key + 1 < kv_len.",
        ),
        NearMiss(
            "one key too many",
            partial(_weighed, keys=_COLUMNS - 1),
            "One key past the end is counted, key kv_len: the keys are 0 to kv_len - "
            "1, so what is seen is key < kv_len.",
        ),
        NearMiss(
            "scaled in the exponent",
            _scaled_in_the_exponent,
            "Weights are scaled and factors are not: scale the scores once, before "
            "their maximum is taken, and both come out right.",
        ),
        NearMiss(
            "weight rescaled late",
            partial(_weighed, mended="after"),
            "The weights' sum is brought to the new maximum when this tile's weights, "
            "which are relative to it already, are in it: first weight *= mend, then "
            "add.",
        ),
        NearMiss(
            "maximum of the first keys",
            partial(_weighed, top=_of_firsts),
            "Of each pair the first score alone takes part in the maximum: s[c].y does "
            "too.",
        ),
        NearMiss(
            "maximum of the warp",
            partial(_weighed, top=_of_the_warp),
            "All rows of a warp have one maximum: two lanes share a row, so one "
            "exchange, with the neighbour, is all that there is.",
        ),
        NearMiss(
            "maximum of the tile alone, or 0",
            partial(_weighed, top=lambda scores: _of_the_tile(scores).clamp(min=0.0)),
            "The maximum is that of the tile alone: begin it with top, what the row "
            "has seen so far.",
        ),
        *(
            NearMiss(
                f"maximum not kept, {relative_to}",
                partial(_never_moved, relative_to=relative_to),
                "Every factor is 0 in every tile: top stays -INFINITY. When mend is "
                "made, top = higher.",
            )
            for relative_to in ("top", "higher")
        ),
        NearMiss(
            "weight not rescaled",
            partial(_weighed, mended=""),
            "The weights' sum is not brought to the new maximum: multiply it by mend "
            "before this tile's weights are added.",
        ),
        *(
            NearMiss(
                f"neighbour not asked, {stored}",
                partial(_alone, stored=stored),
                "No barrier is missing here: the two lanes of a row have two maxima, "
                "and so write two factors to one place. Exchange the maxima first, "
                "higher = fmaxf(higher, __shfl_xor_sync(0xffffffff, higher, 1)).",
            )
            for stored in (0, 1)
        ),
        NearMiss(
            "maximum moved first",
            _moved_first,
            "Every factor is 1: top has become higher before mend is made. First mend "
            "= __expf(top - higher), then top = higher.",
        ),
        NearMiss(
            "maximum of the tile alone",
            partial(_weighed, top=_of_the_tile),
            "The maximum is that of the tile alone: begin it with top, what the row "
            "has seen so far.",
        ),
        NearMiss(
            "not relative to the maximum",
            partial(_weighed, relative=False),
            "The weights are not relative to the maximum: exp(score - top).",
        ),
        NearMiss(
            "pair exchanged",
            _exchanged,
            "The two weights of each pair have changed places: "
            "__floats2half2_rn(low, high) puts low first.",
        ),
        NearMiss(
            "summed twice",
            _summed_twice,
            "The neighbour's sum is added in every tile, and once more behind the "
            "loop: let each lane add up its own columns.",
        ),
        NearMiss(
            "every pair read",
            _next_pairs,
            "A lane takes every other pair: row[2 * c], since the pair between belongs "
            "to the row's other lane.",
        ),
        NearMiss(
            "upside down",
            partial(_weighed, upside_down=True),
            "The factor is upside down: a larger maximum makes what was there smaller, "
            "exp(top - higher), not exp(higher - top).",
        ),
    ),
    hints=(
        "Lane 2 r + h has every other pair of columns of row r: row[2 * c] is the pair "
        "at column 4 c + 2 h. The other lane of the row is one __shfl_xor_sync away.",
        "Scores times scale, hidden from kv_len on, into float2 s[KEYS / 4]; the "
        "maximum over the lane's own, its neighbour's, and top. Then mend = __expf(top "
        "- higher) for weight and mends[own + r], and top = higher.",
        "After a __syncwarp() all have read their scores: low = __expf(s[c].x - top), "
        "high = __expf(s[c].y - top); weight += low + high; packed[2 * c] = "
        "__floats2half2_rn(low, high).",
    ),
    onward="Why does the neighbour's maximum matter, and its sum only at the end?",
    counts=(
        # Two lanes have a row, and both may store what is one for it.
        moves(writers=2)
    ),
    structure=(
        Structure(
            holds=("SHFL",),
            message="The values are right, and the machine code holds no SHFL: two "
            "lanes share a row, and exchange their maxima by __shfl_xor_sync.",
        ),
    ),
    shares={"correct": 0.8, "counts": 0.2, "speed": 0.0},
)
