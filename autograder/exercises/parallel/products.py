"""Products that ranks share: by columns, and by rows with one all-reduce.

**Tolerance.** A sum of up to 96 products in fp32, in any order, over ranks too, is off
by at most its length times eps of the products' size; by chance by its root. ``FACTOR``
times the root of the length, beside the largest value, leaves a factor of some five.
"""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)
from autograder.exercises.parallel.shared import PRELUDE, SHARES, largest, reduced_bytes

FACTOR = 2.0
_ADAPT = (
    "from autograder.worker.adapters.round_the_ring import adapt_product as __adapt__\n"
)
_NO_GATHER = Structure(
    runs_no=("reduce_scatter", "all_to_all"),
    message="The values are right. Wanted was one all_reduce, hidden behind a product.",
)


def product_case(ranks: int, tokens: int, inner: int, outer: int) -> Case:
    """Return a case of one shape; inner and outer are whole, and ranks divide them."""
    sizes = {"ranks": ranks, "tokens": tokens, "in": inner, "out": outer}
    return Case(f"{ranks} ranks, {tokens} tokens, {inner} to {outer}", sizes)


def _sizes(case: Case) -> tuple[int, int, int, int]:
    ranks, tokens, inner, outer = case.sizes.values()
    return ranks, tokens, inner, outer


def _columns(case: Case, generator: torch.Generator) -> Problem:
    ranks, tokens, inner, outer = _sizes(case)
    part = outer // ranks
    return Problem(
        {
            "x": torch.randn(tokens, inner, generator=generator),
            "weight": torch.randn(outer, inner, generator=generator),
            "grad": torch.randn(ranks, tokens, part, generator=generator),
        },
        {
            "y": Output((ranks, tokens, part), torch.float32),
            "dx": Output((ranks, tokens, inner), torch.float32),
            "dw": Output((ranks, part, inner), torch.float32),
        },
        ranks=ranks,
        replicated=("x", "weight"),
    )


def _column_reference(arguments: Arguments) -> Outputs:
    x, weight, grad = (
        tensor(arguments, name).double() for name in ("x", "weight", "grad")
    )
    own = weight.view(len(grad), -1, x.shape[1])
    return {
        "y": x @ own.mT,
        "dx": (grad @ own).sum(0).expand(len(grad), -1, -1),
        "dw": grad.mT @ x,
    }


def _rows(case: Case, generator: torch.Generator) -> Problem:
    ranks, tokens, inner, outer = _sizes(case)
    part = inner // ranks
    return Problem(
        {
            "h": torch.randn(ranks, tokens, part, generator=generator),
            "weight": torch.randn(outer, inner, generator=generator),
            "bias": 3 * torch.randn(outer, generator=generator),
            "grad": torch.randn(tokens, outer, generator=generator),
        },
        {
            "y": Output((ranks, tokens, outer), torch.float32),
            "dh": Output((ranks, tokens, part), torch.float32),
            "dw": Output((ranks, outer, part), torch.float32),
            "db": Output((ranks, outer), torch.float32),
        },
        ranks=ranks,
        replicated=("weight", "bias", "grad"),
    )


def _row_reference(arguments: Arguments) -> Outputs:
    h, weight, bias, grad = (
        tensor(arguments, name).double() for name in ("h", "weight", "bias", "grad")
    )
    ranks = len(h)
    own = weight.view(len(weight), ranks, -1).transpose(0, 1)
    y = (h @ own.mT).sum(0) + bias
    return {
        "y": y.expand(ranks, -1, -1),
        "dh": grad @ own,
        "dw": grad.mT @ h,
        "db": grad.sum(0).expand(ranks, -1),
    }


def _length(case: Case) -> int:
    return max(case.sizes.values())


COLUMN_PARALLEL = Exercise(
    id="column_parallel",
    title="Columns on each rank",
    kind="core",
    points=15,
    language="python",
    entry="ranks",
    name="column_parallel",
    source="solutions/parallel/column_parallel.py",
    goal="Make this rank's columns of a product, and the gradients of x and of its "
    "part of the weight.",
    requirements=(
        "Of n ranks, rank r has the r-th n-th of the weight's rows; n divides them.",
        "`y = x @ own.T` needs no message. `dx` is the sum over ranks of `grad @ own`: "
        "one `dist.all_reduce` with `async_op=True`.",
        "The product that makes `dw = grad.T @ x` runs while the sum is under way.",
    ),
    problem=_columns,
    reference=_column_reference,
    cases=(
        product_case(2, 12, 16, 24),
        product_case(3, 7, 10, 9),
        product_case(2, 1, 33, 4),
        product_case(1, 5, 6, 8),
    ),
    tolerance=Tolerance(
        FACTOR, _length, lambda arguments: largest(_column_reference(arguments))
    ),
    hints=(
        "weight.chunk(n)[rank] is this rank's part. Every column of y depends on all "
        "of x, so x's gradient has a summand from each rank.",
        "handle = dist.all_reduce(dx, async_op=True) returns at once; dx may be used "
        "after handle.wait(). Which product does not need it?",
        "y = x @ own.mT; dx = grad @ own; handle = dist.all_reduce(dx, async_op=True); "
        "dw = grad.mT @ x; handle.wait().",
    ),
    onward="How many tokens must there be, for dw to take as long as the message?",
    counts=(
        Count("messages", ideal=1, times=1),
        Count("sent bytes", ideal=reduced_bytes(2, 12 * 16), times=1.0),
    ),
    structure=(_NO_GATHER,),
    prelude=PRELUDE + _ADAPT,
    shares=SHARES,
)

ROW_PARALLEL = Exercise(
    id="row_parallel",
    title="A sum over ranks",
    kind="core",
    points=15,
    language="python",
    entry="ranks",
    name="row_parallel",
    source="solutions/parallel/row_parallel.py",
    goal="Make a product of which each rank has some columns of the input, by one "
    "all-reduce, and its gradients by none.",
    requirements=(
        "Of n ranks, rank r has the r-th n-th of h's columns, and of the weight's.",
        "Each rank makes a summand of y; one `dist.all_reduce` with `async_op=True` "
        "adds them up. h is not gathered.",
        "The bias is added once. The gradients `dh = grad @ own`, `dw = grad.T @ h` "
        "and `db`, grad's sum over tokens, need no message, and are computed while "
        "the sum is under way.",
    ),
    problem=_rows,
    reference=_row_reference,
    cases=(
        product_case(2, 12, 48, 16),
        product_case(3, 7, 9, 10),
        product_case(2, 1, 34, 5),
        product_case(1, 5, 6, 8),
    ),
    tolerance=Tolerance(
        FACTOR, _length, lambda arguments: largest(_row_reference(arguments))
    ),
    hints=(
        "weight.chunk(n, dim=1)[rank] is this rank's part. What is added up n times, "
        "if every rank adds the bias before the sum?",
        "y = h @ own.mT is a summand. Begin its all_reduce, compute the gradients, "
        "wait, and add the bias then. Every rank has the whole grad.",
        "handle = dist.all_reduce(y, async_op=True); dh = grad @ own; dw = grad.mT @ "
        "h; db = grad.sum(0); handle.wait(); return y + bias, dh, dw, db.",
    ),
    onward="Put column_parallel before it, with GELU between: how many messages has "
    "the MLP, forward and backward?",
    counts=(
        Count("messages", ideal=1, times=1),
        Count("sent bytes", ideal=reduced_bytes(2, 12 * 16), times=1.0),
    ),
    structure=(_NO_GATHER,),
    prelude=PRELUDE + _ADAPT,
    shares=SHARES,
)
