"""The gradients of layer norm, with partial sums of weight and bias."""

from __future__ import annotations

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
    Speed,
    Structure,
    Tolerance,
)
from autograder.exercises.layernorm.shared import (
    EPS,
    THREADS,
    draw_affine,
    draw_rows,
    rows_case,
)
from autograder.ideals import barriers, moves

_MOST_BLOCKS = 1056  # eight for each SM of an H200
_ROWS, _COLUMNS = 12, 768  # of the case whose accesses are counted


def _blocks(rows: int) -> int:
    """Return how many blocks share the rows: about four rows each, where few."""
    return max(1, min(_MOST_BLOCKS, rows // 4))


def _problem(case: Case, generator: torch.Generator) -> Problem:
    x = draw_rows(case, generator)
    rows, columns = x.shape
    weight, _ = draw_affine(case, generator)
    dy = torch.randn(rows, columns, generator=generator)
    mean = x.mean(1)
    rstd = (x.var(1, correction=0) + EPS).rsqrt()
    blocks = _blocks(rows)
    return Problem(
        {
            "x": x,
            "dy": dy,
            "weight": weight,
            "mean": mean,
            "rstd": rstd,
            "dx": None,
            "dweight": None,
            "dbias": None,
            "rows": rows,
            "columns": columns,
        },
        {
            "dx": Output((rows, columns), torch.float32),
            "dweight": Output((blocks, columns), torch.float32),
            "dbias": Output((blocks, columns), torch.float32),
        },
        Launch((blocks,), (THREADS,)),
    )


def _parts(arguments: Arguments) -> tuple[torch.Tensor, ...]:
    """Return what the gradients are made of: dy, h, g = dy * weight, and rstd."""
    x, dy, weight, mean, rstd = (
        tensor(arguments, name).double()
        for name in ("x", "dy", "weight", "mean", "rstd")
    )
    h = (x - mean[:, None]) * rstd[:, None]
    return dy, h, dy * weight, rstd[:, None]


def _by_block(values: torch.Tensor) -> torch.Tensor:
    """Add up the rows of each block: every ``blocks``-th one."""
    rows, columns = values.shape
    blocks = _blocks(rows)
    out = values.new_zeros(blocks, columns)
    return out.index_add(0, torch.arange(rows, device=values.device) % blocks, values)


def _reference(arguments: Arguments) -> Outputs:
    dy, h, g, rstd = _parts(arguments)
    mean_g, mean_gh = (values.mean(1, keepdim=True) for values in (g, g * h))
    return {
        "dx": rstd * (g - mean_g - h * mean_gh),
        "dweight": _by_block(dy * h),
        "dbias": _by_block(dy),
    }


def _scale(arguments: Arguments) -> Outputs:
    """Return the magnitudes that rounding is relative to.

    x - mean is rounded too, by half an eps of itself: that is within |h|.
    """
    dy, h, g, rstd = _parts(arguments)
    rms = (g * g).mean(1, keepdim=True).sqrt()
    return {
        "dx": rstd * (g.abs() + rms * (1.0 + h.abs())),
        "dweight": _by_block((dy * h).abs()),
        "dbias": _by_block(dy.abs()),
    }


LAYER_NORM_BACKWARD = Exercise(
    id="layer_norm_backward",
    title="Three gradients, read once",
    kind="core",
    points=30,
    language="cuda",
    entry="kernel",
    name="layer_norm_backward",
    source="solutions/layernorm/partials.cu",
    goal="Compute dx, and in the same sweep a row of partial sums of dweight and dbias "
    "for each block.",
    requirements=(
        "Block b takes rows b, `b + gridDim.x`, `b + 2 * gridDim.x`, …; thread t "
        "columns t, t + 256, …, at most four.",
        "mean and rstd of each row are given, as the forward pass left them.",
        "`dx = rstd * (g - mean(g) - h * mean(g * h))` with `h = (x - mean) * rstd` "
        "and `g = dy * weight`.",
        "`dw` and `db` hold what this thread's columns have gathered: `dy * h`, and "
        "`dy`.",
        "x, dy and weight are each loaded once a row, with at most four barriers; no "
        "atomics.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        rows_case(_ROWS, _COLUMNS),
        rows_case(6, 1000),
        rows_case(5, 33),
        rows_case(4, 1),
        rows_case(1, 257),
        rows_case(13, 64, "offset"),
    ),
    # As for the forward pass: eps * sqrt(N) of what is summed, in either direction.
    tolerance=Tolerance(
        factor=2.0, length=lambda case: case.sizes["columns"], scale=_scale
    ),
    hints=(
        "Two sums a row are needed before dx can be written, of g and of g * h. Keep "
        "what you read: h and g of your four columns.",
        "One loop over k: read x and dy, make h[k] and g[k], add to dw[k], db[k], "
        "sum_g and sum_gh. Then block_sum both. Then a second loop over k that reads "
        "nothing and writes dx.",
        "float d = dy[row * columns + c];  h[k] = (x[row * columns + c] - m) * r;  "
        "g[k] = d * weight[c];  dw[k] += d * h[k];  db[k] += d;  …  dx[row * columns + "
        "c] = r * (g[k] - sum_g - h[k] * sum_gh);",
    ),
    onward="Make block_sum take both sums at once: how many barriers a row are left?",
    counts=(
        # Each of a block's eight warps asks for a row's mean and rstd: a sector each.
        *moves({"weight": _ROWS, "mean": 64, "rstd": 64}),
        # Two sums a row, at two barriers each.
        barriers(8, 16),
    ),
    structure=(
        Structure(
            lacks=("ATOM", "RED.", "REDG"),
            message="The values are right, and added in memory by atomics: gather them "
            "in `dw` and `db`, since no other block writes to this block's row.",
        ),
    ),
    speed=Speed(
        peer="copy bandwidth",
        case=rows_case(131072, 1024),
        bytes_moved=lambda case: 12 * case.sizes["rows"] * case.sizes["columns"],
        bands={"bronze": 0.50, "silver": 0.70, "gold": 0.80},
    ),
)
