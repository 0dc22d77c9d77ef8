"""Chapter 9's rows of scores that become weights, tile by tile, two lanes a row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

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

_KEYS = 64  # of a tile, as the stub says
_SCALE = 0.125
_FACTOR = 8.0


def _rows_case(rows: int, kv_len: int, regime: str = "distinct") -> Case:
    said = {"distinct": "normal scores", "rising": "scores that rise"}[regime]
    name = f"{rows} rows, {kv_len} keys, {said}"
    return Case(name, {"rows": rows, "kv_len": kv_len}, regime)


def _weigh_problem(case: Case, generator: torch.Generator) -> Problem:
    rows, kv_len = case.sizes["rows"], case.sizes["kv_len"]
    tiles = -(-kv_len // _KEYS)
    scores = 8 * torch.randn(tiles, rows, _KEYS, generator=generator)
    if case.regime == "rising":
        scores += 24.0 * torch.arange(tiles)[:, None, None]
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
    arguments: Arguments, power: int = 1, hidden: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scaled scores, and each tile's maximum so far: (tiles, rows)."""
    kv_len = arguments["kv_len"]
    assert isinstance(kv_len, int)
    scores = tensor(arguments, "scores").double() * _SCALE**power
    if hidden:
        key = torch.arange(_KEYS, device=scores.device)
        for tile in range(len(scores)):
            scores[tile, :, tile * _KEYS + key >= kv_len] = -math.inf
    return scores, scores.amax(2).cummax(0).values


def _weighed(
    arguments: Arguments,
    *,
    power: int = 1,
    hidden: bool = True,
    mended: bool = True,
    upside_down: bool = False,
    anew: bool = False,
    relative: bool = True,
) -> Outputs:
    """Turn scores into weights, in float64, with the known mistakes."""
    scores, top = _logits(arguments, power, hidden)
    if anew:
        top = scores.amax(2)
    weights = torch.exp(scores - (top[:, :, None] if relative else 0.0))
    before = torch.cat([torch.full_like(top[:1], -math.inf), top[:-1]])
    mends = torch.exp(top - before if upside_down else before - top)
    total = torch.zeros_like(top[0])
    for tile, mend in zip(weights, mends, strict=True):
        total = total * (mend if mended else 1.0) + tile.sum(1)
    return {"weights": weights, "mends": mends, "totals": total}


def _moved_first(arguments: Arguments) -> Outputs:
    made = _weighed(arguments, mended=False)
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
        "Scores are scaled; columns from `kv_len` on weigh nothing.",
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
        _rows_case(48, 200, "rising"),
    ),
    hidden=_weigh_hidden,
    tolerance=Tolerance(factor=_FACTOR, scale=_weigh_scale),
    near_misses=(
        NearMiss(
            "scale forgotten",
            lambda a: _weighed(a, power=0),
            "The scores are not scaled: they are multiplied by scale before the "
            "maximum.",
        ),
        NearMiss(
            "scale twice",
            lambda a: _weighed(a, power=2),
            "The scores are scaled twice: once is scale.",
        ),
        NearMiss(
            "wrong tail",
            lambda a: _weighed(a, hidden=False),
            "The last tile has fewer keys than room, and the empty places are counted. "
            "Give keys from kv_len on a score of -INFINITY: exp makes that 0.",
        ),
        NearMiss(
            "weight not rescaled",
            lambda a: _weighed(a, mended=False),
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
            lambda a: _weighed(a, anew=True),
            "The maximum is that of the tile alone: begin it with top, what the row "
            "has seen so far.",
        ),
        NearMiss(
            "not relative to the maximum",
            lambda a: _weighed(a, relative=False),
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
            "second of a pair past the end",
            _first_of_a_pair,
            "Where kv_len is odd, the second key of the last pair does not exist: it "
            "needs a comparison of its own, key + 1 < kv_len.",
        ),
        NearMiss(
            "every pair read",
            _next_pairs,
            "A lane takes every other pair: row[2 * c], since the pair between belongs "
            "to the row's other lane.",
        ),
        NearMiss(
            "upside down",
            lambda a: _weighed(a, upside_down=True),
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
    structure=(
        Structure(
            holds=("SHFL",),
            message="The values are right, and the machine code holds no SHFL: two "
            "lanes share a row, and exchange their maxima by __shfl_xor_sync.",
        ),
    ),
    shares={"correct": 1.0, "counts": 0.0, "speed": 0.0},
)
