"""Rows of scores that become weights, tile by tile, two lanes a row."""

from __future__ import annotations

import math

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)
from autograder.ideals import moves

_KEYS = 64  # of a tile, as the stub says
_SCALE = 0.125
_FACTOR = 8.0


def rows_case(rows: int, kv_len: int, regime: str = "distinct") -> Case:
    """Return a case of one shape, named as the learner reads it."""
    said = {
        "distinct": "normal scores",
        "rising": "scores that rise",
        "low": "scores near -2,000",
    }[regime]
    name = f"{rows} rows, {kv_len} keys, {said}"
    return Case(name, {"rows": rows, "kv_len": kv_len}, regime)


def _problem(case: Case, generator: torch.Generator) -> Problem:
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


def _logits(arguments: Arguments) -> torch.Tensor:
    """Return scaled scores in float64, those from ``kv_len`` on hidden."""
    kv_len = arguments["kv_len"]
    assert isinstance(kv_len, int)
    scores = tensor(arguments, "scores").double() * _SCALE
    key = torch.arange(scores.shape[0] * _KEYS, device=scores.device)
    return scores.masked_fill((key >= kv_len).view(-1, 1, _KEYS), -math.inf)


def _reference(arguments: Arguments) -> Outputs:
    """Turn scores into weights, in float64."""
    scores = _logits(arguments)
    highest = scores.amax(2).cummax(0).values
    before = torch.cat([torch.full_like(highest[:1], -math.inf), highest[:-1]])
    weights, mends = (
        torch.exp(scores - highest[:, :, None]),
        torch.exp(before - highest),
    )
    totals = torch.zeros_like(mends[0])
    for tile, mend in zip(weights, mends, strict=True):
        totals = totals * mend + tile.sum(1)
    return {"weights": weights, "mends": mends, "totals": totals}


def _scale(arguments: Arguments) -> Outputs:
    """Return what each may err by: the exponent's rounding is the result's error."""
    right = _reference(arguments)
    most = 1.0 + _logits(arguments).nan_to_num(0.0, 0.0, 0.0).abs().amax((0, 2))
    # Weights are rounded to fp16: that is all that shows of them.
    return {
        "weights": right["weights"] * 1.25 / _FACTOR,
        "mends": right["mends"] * most,
        "totals": right["totals"] * most,
    }


WEIGH_ROWS = Exercise(
    id="weigh_rows",
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
        "brings earlier ones to it. `totals` adds weights up before they are rounded.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        rows_case(16, 128),
        rows_case(32, 77),
        rows_case(16, 64),
        rows_case(16, 1),
        rows_case(48, 202, "rising"),
        rows_case(16, 70, "low"),
    ),
    tolerance=Tolerance(factor=_FACTOR, scale=_scale),
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
