"""Chapter 5: the gradients of layer norm, with partial sums of weight and bias."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

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
    Speed,
    Tolerance,
)
from autograder.exercises._layernorm import (
    EPS,
    STEM,
    draw_affine,
    draw_rows,
    drawn,
    rows_case,
)
from autograder.totals import barriers, moves

_THREADS = 256
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
        Launch((blocks,), (_THREADS,)),
    )


@dataclass(frozen=True)
class _Parts:
    """What the gradients are made of, in float64: h, g = dy * weight, and 1 / sigma."""

    dy: torch.Tensor
    h: torch.Tensor
    g: torch.Tensor
    rstd: torch.Tensor

    @property
    def mean_g(self) -> torch.Tensor:
        return self.g.mean(1, keepdim=True)

    @property
    def mean_gh(self) -> torch.Tensor:
        return (self.g * self.h).mean(1, keepdim=True)

    @property
    def dx(self) -> torch.Tensor:
        return self.rstd * (self.g - self.mean_g - self.h * self.mean_gh)


def _parts(arguments: Arguments) -> _Parts:
    x, dy, weight, mean, rstd = (
        tensor(arguments, name).double()
        for name in ("x", "dy", "weight", "mean", "rstd")
    )
    h = (x - mean[:, None]) * rstd[:, None]
    return _Parts(dy, h, dy * weight, rstd[:, None])


def _by_block(values: torch.Tensor) -> torch.Tensor:
    """Add up the rows of each block: every ``blocks``-th one."""
    rows, columns = values.shape
    blocks = _blocks(rows)
    out = values.new_zeros(blocks, columns)
    return out.index_add(0, torch.arange(rows, device=values.device) % blocks, values)


def _gradients(
    dx: Callable[[_Parts], torch.Tensor] = lambda p: p.dx,
    dweight: Callable[[_Parts], torch.Tensor] = lambda p: _by_block(p.dy * p.h),
    dbias: Callable[[_Parts], torch.Tensor] = lambda p: _by_block(p.dy),
) -> Callable[[Arguments], Outputs]:
    """Return the gradients, or a mistake in one of them."""

    def output(arguments: Arguments) -> Outputs:
        p = _parts(arguments)
        return {"dx": dx(p), "dweight": dweight(p), "dbias": dbias(p)}

    return output


def _with_means(
    of_g: Callable[[_Parts], torch.Tensor] = lambda p: p.mean_g,
    of_gh: Callable[[_Parts], torch.Tensor] = lambda p: p.mean_gh,
) -> Callable[[Arguments], Outputs]:
    """Return the gradients with something else for one of dx's two means."""
    return _gradients(dx=lambda p: p.rstd * (p.g - of_g(p) - p.h * of_gh(p)))


def _of_parts(
    change: Callable[[_Parts, Arguments], _Parts],
) -> Callable[[Arguments], Outputs]:
    """Return all three gradients, made of parts that a mistake has changed."""

    def output(arguments: Arguments) -> Outputs:
        p = change(_parts(arguments), arguments)
        return {"dx": p.dx, "dweight": _by_block(p.dy * p.h), "dbias": _by_block(p.dy)}

    return output


def _first_statistics(p: _Parts, arguments: Arguments) -> _Parts:
    """Give each row the mean and rstd of its block's first."""
    x = tensor(arguments, "x").double()
    first = torch.arange(len(x)) % _blocks(len(x))
    mean, rstd = (
        tensor(arguments, name).double()[first][:, None] for name in ("mean", "rstd")
    )
    return replace(p, h=(x - mean) * rstd, rstd=rstd)


def _own(values: torch.Tensor) -> torch.Tensor:
    """Give each column what its thread's columns add up to, over all columns."""
    columns = values.shape[1]
    thread = torch.arange(columns) % _THREADS
    sums = values.new_zeros(len(values), _THREADS).index_add(1, thread, values)
    return sums[:, thread] / columns


def _scale(arguments: Arguments) -> Outputs:
    """Return the magnitudes that rounding is relative to.

    x - mean is rounded too, by half an eps of itself: that is within |h|.
    """
    p = _parts(arguments)
    rms = (p.g * p.g).mean(1, keepdim=True).sqrt()
    return {
        "dx": p.rstd * (p.g.abs() + rms * (1.0 + p.h.abs())),
        "dweight": _by_block((p.dy * p.h).abs()),
        "dbias": _by_block(p.dy.abs()),
    }


def _each(rows: int, columns: int, regime: str = "distinct") -> Case:
    return rows_case(rows, columns, regime)


def _hidden(generator: torch.Generator) -> Iterator[Case]:
    yield _each(drawn(6, 10, generator), drawn(257, 900, generator))
    yield _each(drawn(5, 9, generator), drawn(2, 31, generator))
    yield _each(drawn(11, 16, generator), drawn(33, 255, generator))


LAYER_NORM_BACKWARD = Exercise(
    id="layer_norm_backward",
    stem=STEM,
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
        "x and dy are each loaded once, with at most four barriers a row; no atomics.",
    ),
    problem=_problem,
    reference=_gradients(),
    cases=(
        _each(_ROWS, _COLUMNS),
        _each(6, 1000),
        _each(5, 33),
        _each(4, 1),
        _each(1, 257),
        _each(13, 64, "offset"),
    ),
    hidden=_hidden,
    # As for the forward pass: eps * sqrt(N) of what is summed, in either direction.
    tolerance=Tolerance(
        factor=2.0, length=lambda case: case.sizes["columns"], scale=_scale
    ),
    near_misses=(
        NearMiss(
            "mean not taken",
            _gradients(dx=lambda p: p.rstd * (p.g - p.h * p.mean_gh)),
            "dx lacks - mean(g): the mean of x depends on every element of the row, "
            "and that is what comes back through it.",
        ),
        NearMiss(
            "projection not taken",
            _gradients(dx=lambda p: p.rstd * (p.g - p.mean_g)),
            "dx lacks - h * mean(g * h): the deviation depends on every element of the "
            "row too.",
        ),
        NearMiss(
            "statistics constant",
            _gradients(dx=lambda p: p.rstd * p.g),
            "dx is rstd * g, as if mean and deviation were constants. They were made "
            "of x: two terms more.",
        ),
        NearMiss(
            "weight forgotten",
            _gradients(
                dx=lambda p: (
                    p.rstd
                    * (
                        p.dy
                        - p.dy.mean(1, keepdim=True)
                        - p.h * (p.dy * p.h).mean(1, keepdim=True)
                    )
                )
            ),
            "dx is made from dy where g = dy * weight is meant.",
        ),
        NearMiss(
            "weight in dweight",
            _gradients(dweight=lambda p: _by_block(p.g * p.h)),
            "dweight gathers g * h. The weight's own gradient has no weight in it: "
            "dy * h.",
        ),
        NearMiss(
            "last row only",
            _gradients(
                dweight=lambda p: _last(p.dy * p.h), dbias=lambda p: _last(p.dy)
            ),
            "dweight and dbias hold the last row of each block: add with +=, do not "
            "set with =.",
        ),
        NearMiss(
            "not divided",
            _with_means(
                lambda p: p.g.sum(1, keepdim=True),
                lambda p: (p.g * p.h).sum(1, keepdim=True),
            ),
            "The two sums are not divided by columns: they are to be means.",
        ),
        NearMiss(
            "mean of g not divided",
            _with_means(of_g=lambda p: p.g.sum(1, keepdim=True)),
            "The sum of g is not divided by columns: it is to be a mean.",
        ),
        NearMiss(
            "mean of g * h not divided",
            _with_means(of_gh=lambda p: (p.g * p.h).sum(1, keepdim=True)),
            "The sum of g * h is not divided by columns: it is to be a mean.",
        ),
        NearMiss(
            "mean over threads",
            _gradients(
                dx=lambda p: (
                    p.rstd
                    * (p.g - (p.mean_g + p.h * p.mean_gh) * (p.g.shape[1] / _THREADS))
                )
            ),
            "The two sums are divided by 256, the threads: a row has `columns` "
            "elements.",
        ),
        NearMiss(
            "mean of dy",
            _with_means(of_g=lambda p: p.dy.mean(1, keepdim=True)),
            "The first mean is that of dy: it is to be that of g = dy * weight.",
        ),
        NearMiss(
            "mean of dy * h",
            _with_means(of_gh=lambda p: (p.dy * p.h).mean(1, keepdim=True)),
            "The second mean is that of dy * h: it is to be that of g * h, with g = dy "
            "* weight.",
        ),
        NearMiss(
            "rstd twice",
            _gradients(dx=lambda p: p.rstd * p.dx),
            "dx has the factor rstd once too often: h has one of its own already.",
        ),
        NearMiss(
            "dweight of x",
            lambda arguments: {
                **_gradients()(arguments),
                "dweight": _by_block(
                    tensor(arguments, "dy").double() * tensor(arguments, "x").double()
                ),
            },
            "dweight gathers dy * x: the weight was multiplied by h, so it is dy * h.",
        ),
        NearMiss(
            "dweight for dbias",
            _gradients(
                dweight=lambda p: _by_block(p.dy),
                dbias=lambda p: _by_block(p.dy * p.h),
            ),
            "dweight and dbias have changed places: dw gathers dy * h, db gathers dy.",
        ),
        NearMiss(
            "rstd forgotten",
            _gradients(dx=lambda p: p.dx / p.rstd),
            "dx lacks the factor rstd in front: the rows were divided by their "
            "deviation, and so is what comes back.",
        ),
        NearMiss(
            "projection added",
            _gradients(dx=lambda p: p.rstd * (p.g - p.mean_g + p.h * p.mean_gh)),
            "h * mean(g * h) is added to dx, and is to be taken away.",
        ),
        NearMiss(
            "h not scaled",
            _of_parts(lambda p, arguments: replace(p, h=p.h / p.rstd)),
            "h is x - mean: it lacks the factor rstd.",
        ),
        NearMiss(
            "statistics of the block's first row",
            _of_parts(_first_statistics),
            "mean and rstd are those of the block's first row: read them for each row, "
            "mean[row] and rstd[row].",
        ),
        NearMiss(
            "weight in dbias",
            _gradients(dbias=lambda p: _by_block(p.g)),
            "dbias gathers g. The bias is added behind the weight: its gradient is dy.",
        ),
        NearMiss(
            "dweight of the last row",
            _gradients(dweight=lambda p: _last(p.dy * p.h)),
            "dweight holds the last row of each block: add with +=, do not set with =.",
        ),
        NearMiss(
            "threads alone",
            _with_means(lambda p: _own(p.g), lambda p: _own(p.g * p.h)),
            "Each thread takes the means of its own columns: add the sums of all 256 "
            "threads by block_sum.",
        ),
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
    speed=Speed(
        peer="copy bandwidth",
        case=_each(131072, 1024),
        bytes_moved=lambda case: 12 * case.sizes["rows"] * case.sizes["columns"],
        bands={"bronze": 0.50, "silver": 0.70, "gold": 0.80},
    ),
)


def _last(values: torch.Tensor) -> torch.Tensor:
    """Return each block's last row."""
    rows = values.shape[0]
    blocks = _blocks(rows)
    last = [max(range(block, rows, blocks)) for block in range(blocks)]
    return values[torch.tensor(last, device=values.device)]
