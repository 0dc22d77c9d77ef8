"""What the exercises of chapter 8 share: rows, softmax in float64, the tolerance.

**Tolerance.** An output is e / total, with e = exp(x - maximum). The difference d =
maximum - x is rounded by eps/2 of itself, which moves e by d * eps/2 of itself; the
exponential is off by two units in the last place, and so is the division, 4 * eps in
all. The total is moved by the mean of its own d, weighed by e, and its N terms of one
sign, added in any order, by 0.29 * eps * sqrt(N). A total that is brought to a new
maximum is multiplied by exponentials of differences that add up to d. So

    |error| <= 2 * eps * (4 + sqrt(N) + d + mean of d) * output,    eps of fp32,

and what is rounded to 16 bits at the end gets 1.5 * eps of those more. Sums kept in 16
bits do not keep it. The last bits of subnormal numbers are added: there nothing is
relative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch.nn.functional import pad

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Launch,
    Output,
    Outputs,
    Problem,
    Speed,
    Tolerance,
)

STEM = "softmax"
THREADS = 256
FACTOR = 2.0
_EPS = torch.finfo(torch.float32).eps
_REGIMES = {
    "distinct": "normal values",
    "growing": "later columns larger",
    "far": "values near 1,000",
    "large": "values of some 10,000",
    "masked": "some -inf, and a row of nothing else",
    "special": "NaN and Inf among them",
    "cold": "values near -300",
    "deep": "values near -30,000",
    "filled": "some at the lowest float, and a row of nothing else",
    "warm": "values near 8",
    "flat": "values near 0.1",
}

Mistake = Callable[[Arguments], Outputs]


def rows_case(
    rows: int,
    columns: int,
    regime: str = "distinct",
    dtype: torch.dtype = torch.float32,
) -> Case:
    """Return a case of one shape, named as the learner reads it."""
    short = {torch.float16: ", fp16"}.get(dtype, "")
    name = f"{rows:,} x {columns:,}{short}, {_REGIMES[regime]}"
    return Case(name, {"rows": rows, "columns": columns}, regime, dtype)


def drawn(generator: torch.Generator, low: int, high: int) -> int:
    """Draw a whole number from low to below high."""
    return int(torch.randint(low, high, (), generator=generator))


def draw_rows(case: Case, generator: torch.Generator) -> torch.Tensor:
    """Draw a matrix of logits in the case's regime; its rows differ."""
    rows, columns = case.sizes["rows"], case.sizes["columns"]
    x = torch.randn(rows, columns, generator=generator)
    if case.regime == "growing":  # the running maximum moves again and again
        x += torch.linspace(-6, 6, columns)
    elif case.regime == "far":  # exp alone overflows
        x = 3 * x + 1_000.0
    elif case.regime == "large":
        x *= 10_000.0
    elif case.regime == "masked":
        x[torch.rand(rows, columns, generator=generator) < 0.3] = -torch.inf
        x[-1] = -torch.inf
    elif case.regime == "special":
        x[0, columns // 2] = torch.nan
        x[-1, columns // 3] = torch.inf
    elif case.regime == "cold":
        x = 4 * x - 300.0
    elif case.regime == "deep":  # below whatever number a maximum may begin at
        x = 4 * x - 30_000.0
    elif case.regime == "filled":  # as a mask does that has no -inf
        lowest = torch.finfo(torch.float32).min
        x[torch.rand(rows, columns, generator=generator) < 0.2] = lowest
        x[-1] = lowest
    elif case.regime == "warm":  # exp stays below 65,504, and a sum of a few does not
        x = 8.0 + 0.8 * x.clamp(-3, 3)
    elif case.regime == "flat":  # no exponential is small beside the largest
        x = 0.1 + 0.01 * x.clamp(-3, 3)
    else:
        x *= 2.0
    return x.to(case.dtype)


def logits(arguments: Arguments) -> torch.Tensor:
    """Return x in float64."""
    return tensor(arguments, "x").double()


def highest(x: torch.Tensor) -> torch.Tensor:
    """Return the maximum along the last dimension, kept; -inf where there is none.

    As fmaxf does, it passes over NaN.
    """
    if x.shape[-1] == 0:
        return x.new_full((*x.shape[:-1], 1), -torch.inf)
    return x.masked_fill(x.isnan(), -torch.inf).amax(-1, keepdim=True)


def softmax(arguments: Arguments) -> Outputs:
    """Return the right output."""
    return {"out": torch.softmax(logits(arguments), -1)}


def weights(x: torch.Tensor) -> torch.Tensor:
    """Return exp(x - maximum), NaN in a row that is all -inf."""
    return torch.exp(x - highest(x))


def of_rows(made: Callable[[torch.Tensor], torch.Tensor]) -> Mistake:
    """Return what makes an output of the matrix x, in float64."""

    def output(arguments: Arguments) -> Outputs:
        return {"out": made(logits(arguments))}

    return output


def block_problem(case: Case, generator: torch.Generator) -> Problem:
    """Return the launch of a block of 256 threads a row, in the case's dtype."""
    x = draw_rows(case, generator)
    rows, columns = x.shape
    return Problem(
        {"x": x, "out": None, "columns": columns},
        {"out": Output((rows, columns), case.dtype)},
        Launch((rows,), (THREADS,)),
    )


def timed(rows: int, columns: int, bands: dict[str, float]) -> Speed:
    """Return the speed gate of a softmax in fp32: each element read and written."""
    return Speed(
        peer="copy bandwidth",
        case=rows_case(rows, columns),
        bytes_moved=lambda case: 8 * case.sizes["rows"] * case.sizes["columns"],
        bands=bands,
    )


def cut(x: torch.Tensor, size: int) -> torch.Tensor:
    """Return (rows, at least one piece, size) of a row's numbers, -inf past the end."""
    pieces = max(1, -(-x.shape[1] // size))
    whole = pad(x, (0, pieces * size - x.shape[1]), value=-torch.inf)
    return whole.view(len(x), pieces, size)


def joined(x: torch.Tensor, parts: torch.Tensor) -> torch.Tensor:
    """Return the pieces of ``cut`` as rows of x's length again."""
    return parts.flatten(1)[:, : x.shape[1]]


def maxima_and_totals(
    parts: torch.Tensor, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return maximum and sum of exp(x - maximum) along a dimension, which stays."""
    most = parts.amax(dim, keepdim=True)
    base = most.masked_fill(most == -torch.inf, 0.0)
    return most, torch.exp(parts - base).sum(dim, keepdim=True)


def without_maximum(x: torch.Tensor) -> torch.Tensor:
    """Return what fp32 makes of exp(x) / sum, with no maximum taken away."""
    e = torch.exp(x.float())
    # The sum in float64, cut where a float ends: its order is the learner's.
    total = e.double().sum(-1, keepdim=True).float()
    return e.double() / total.double()


def from_zero(x: torch.Tensor) -> torch.Tensor:
    """Return what comes of a maximum that begins at 0, in fp32: exp(-300) is 0."""
    e = torch.exp((x - highest(x).clamp(min=0.0)).float()).double()
    return e / e.sum(-1, keepdim=True)


def _by_logarithm(x: torch.Tensor) -> torch.Tensor:
    """Return what fp32 makes of exp(x - (maximum + log(total)))."""
    logarithm = torch.log(weights(x).sum(-1, keepdim=True)).float()
    return torch.exp(x.float() - (highest(x).float() + logarithm)).double()


def _empty_rows_as_zeros(x: torch.Tensor) -> torch.Tensor:
    nothing = (x == -torch.inf).all(-1, keepdim=True)
    return torch.softmax(x, -1).masked_fill(nothing, 0.0)


def shared_misses() -> tuple[tuple[str, Mistake, str], ...]:
    """Return the mistakes that any softmax can make: name, output, message."""
    return (
        (
            "no maximum",
            of_rows(without_maximum),
            "exp(x) overflows: no maximum is taken away first. exp(x - maximum) is at "
            "most 1, and the quotient is the same.",
        ),
        (
            "not divided",
            of_rows(weights),
            "out holds exp(x - maximum): divide by the sum of the row.",
        ),
        (
            "logarithm",
            of_rows(lambda x: torch.log_softmax(x, -1)),
            "This is the logarithm of the softmax, x - maximum - log(total): take its "
            "exponential.",
        ),
        (
            "by the logarithm",
            of_rows(_by_logarithm),
            "Right on paper: exp(x - (maximum + log(total))). But that sum is rounded "
            "as a number of the maximum's size, near 1,000 by up to 0.00003, and so "
            "is every output. Take the maximum away first, then divide by the total.",
        ),
        (
            "empty rows as zeros",
            of_rows(_empty_rows_as_zeros),
            "A row that is all -inf has come out as zeros. It has no softmax: 0 / 0 is "
            "NaN, as in torch, and nobody overlooks that. Is a total of 0 caught, or "
            "does a finite number such as -1e9 stand where -inf belongs?",
        ),
    )


def scale(arguments: Arguments) -> Outputs:
    """Return the magnitude that rounding is relative to, in eps of the output."""
    dtype = tensor(arguments, "x").dtype
    facts = torch.finfo(dtype)
    x = logits(arguments)
    p = torch.softmax(x, -1).nan_to_num(0.0)
    below = (highest(x) - x).nan_to_num(0.0, 0.0, 0.0)
    mean = (p * below).sum(-1, keepdim=True)
    root = max(1, x.shape[-1]) ** 0.5
    relative = 4.0 + root + below + mean
    if dtype == torch.float32:
        relative = relative / root  # which the length brings
    else:
        relative = relative * (_EPS / facts.eps) + 0.75
    return {"out": p * relative + facts.tiny}


def _length(case: Case) -> int:
    # A known mistake has room by its own size: sqrt(N) eps of fp32, and one of fp16.
    return case.sizes["columns"] if case.dtype == torch.float32 else 1


TOLERANCE = Tolerance(factor=FACTOR, length=_length, scale=scale)


def hidden_rows(
    most: int, dtypes: tuple[torch.dtype, ...] = (torch.float32,)
) -> Callable[[torch.Generator], Iterator[Case]]:
    """Return what draws awkward shapes with up to ``most`` columns."""

    def hidden(generator: torch.Generator) -> Iterator[Case]:
        for number, (low, high, regime) in enumerate(
            (
                (2, 32, "distinct"),
                (33, 255, "growing"),
                (257, most // 2, "far"),
                (40, 400, "masked"),
                (most // 2, most, "distinct"),
                (100, 300, "cold"),
            )
        ):
            dtype = dtypes[number % len(dtypes)]
            columns, rows = drawn(generator, low, high), drawn(generator, 2, 6)
            yield rows_case(rows, columns, regime, dtype)

    return hidden
