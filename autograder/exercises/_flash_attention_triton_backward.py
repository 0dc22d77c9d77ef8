"""Chapter 10's gradients: what they are, what they may err by, how they go wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.exercises._flash_attention_triton import (
    PRELUDE,
    STEM,
    attention_case,
    draw,
    exact,
    made_in_triton,
    seen_causally,
    with_adapter,
)
from autograder.exercises._flash_attention_triton_bends import TILE_BENDS
from autograder.exercises._flash_attention_triton_walk import BACKWARD_BENDS
from autograder.totals import moves

_FACTOR = 4.0


# --- tile_gradients ---------------------------------------------------------------


def _backward_problem(case: Case, generator: torch.Generator) -> Problem:
    q, k, v = draw(case, generator)
    grad = torch.randn(q.shape, generator=generator, device=q.device).half()
    arguments = {"q": q, "k": k, "v": v}
    out = exact(arguments, seen_causally).half()
    s = q.double() @ k.double().mT / math.sqrt(q.shape[3])
    lse = s.masked_fill(~seen_causally(arguments), -math.inf).logsumexp(-1).float()
    outputs = {f"d{name}": Output(tuple(q.shape), torch.float16) for name in "qkv"}
    return Problem({"grad": grad, **arguments, "out": out, "lse": lse}, outputs)


def _weights(arguments: Arguments) -> tuple[torch.Tensor, ...]:
    """Return q, k, v, grad, P and dP in float64."""
    q, k, v, grad = (
        tensor(arguments, name).double() for name in ("q", "k", "v", "grad")
    )
    s = (q @ k.mT / math.sqrt(q.shape[3])).masked_fill(
        ~seen_causally(arguments), -math.inf
    )
    return q, k, v, grad, torch.softmax(s, -1), grad @ v.mT


def gradients(arguments: Arguments) -> Outputs:
    """Return dq, dk and dv in float64."""
    q, k, _, grad, p, dp = _weights(arguments)
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * q.shape[3] ** -0.5
    return {"dq": ds @ k, "dk": ds.mT @ q, "dv": p.mT @ grad}


def gradient_scales(arguments: Arguments) -> Outputs:
    """Add up what the roundings of P, dS, out and the results can move.

    A rounding errs by eps / 2 at most, 0.29 eps in the root mean square, each by
    itself: a sum of them errs by 0.29 eps times the root of the squares' sum, and
    4 eps is fourteen times that, so that a known mistake, whose numbers may be larger,
    is still known. The result is rounded once, or one bit beside it.
    """
    q, k, v, grad, p, dp = _weights(arguments)
    scale, seen = q.shape[3] ** -0.5, seen_causally(arguments)
    out = p @ v
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
    # D_i comes from an out that was rounded: one error for the whole row.
    row = (grad * out).square().sum(-1, keepdim=True).sqrt() * scale
    # Below 2^-14 fp16 keeps no digits: an error of 2^-25, whatever the number.
    ds2 = ds.square() + 2.0**-28 * seen
    p2 = p.square() + 2.0**-28 * seen
    last_bit = 1 / _FACTOR
    return {
        "dq": (ds2 @ k.square()).sqrt()
        + row * (p @ k).abs()
        + last_bit * (ds @ k).abs(),
        "dk": ((ds2 + (p * row).square()).mT @ q.square()).sqrt()
        + last_bit * (ds.mT @ q).abs(),
        "dv": (p2.mT @ grad.square()).sqrt() + last_bit * (p.mT @ grad).abs(),
    }


def _backward_hidden(generator: torch.Generator, heads: int = 1) -> Iterator[Case]:
    def some(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    yield attention_case(some(65, 128), 32, heads=heads, regime="growing")
    yield attention_case(some(2, 64), 16, heads=2)


TILE_GRADIENTS = Exercise(
    id="tile_gradients",
    stem=STEM,
    title="The gradients of a tile, recomputed",
    kind="core",
    points=10,
    language="python",
    entry="function",
    name="tile_gradients",
    source="solutions/flash_attention_triton/training.py",
    goal="For one tile of queries against one of keys, make P again from lse, and with "
    "it `dq`, and what is added to `dk` and `dv`.",
    requirements=(
        "P comes from q, k and `lse`: no maximum, no sum.",
        "`dot` holds D_i of each query, dO_i . O_i.",
        "All operands of products are 16 bits, all sums fp32.",
    ),
    problem=_backward_problem,
    reference=gradients,
    # Narrow heads: a gradient that lacks its scale is 4 times too large, and its
    # roundings are still below what the right one may err by.
    cases=(
        attention_case(128, 16),
        attention_case(100, 16, heads=2),
        attention_case(130, 32, heads=3, regime="growing"),
        attention_case(1, 16),
        # Logits of hundreds: rounded to 16 bits, they and lse are off by a tenth.
        attention_case(70, 16, regime="large"),
    ),
    hidden=lambda generator: _backward_hidden(generator, heads=3),
    tolerance=Tolerance(factor=_FACTOR, scale=gradient_scales),
    near_misses=TILE_BENDS,
    hints=(
        "Five products: s, dv, dp, dk, dq. s and dp are (ROWS, COLS); the two that go "
        "to keys need the transpose of what was computed by queries.",
        "p = exp(s - lse), with s = -inf where not seen. dv += p^T grad; dp = grad "
        "v^T; ds = p * (dp - dot) * scale.",
        "dv += tl.dot(tl.trans(p.to(grad.dtype)), grad); dp = tl.dot(grad, "
        "tl.trans(v)); ds = (p * (dp - dot[:, None]) * scale).to(q.dtype); dk += "
        "tl.dot(tl.trans(ds), q); dq = tl.dot(ds, k).",
    ),
    onward="Which of the five products would be left if P had been stored?",
    structure=(made_in_triton("tl.dot"),),
    prelude=with_adapter("adapt_gradients"),
)

# --- flash_backward ---------------------------------------------------------------

# A head of two tiles: k and v once; q and grad, lse and D for 2 + 1 tiles of queries.


FLASH_BACKWARD = Exercise(
    id="flash_backward",
    stem=STEM,
    title="Gradients, by tiles of keys",
    kind="core",
    points=10,
    language="python",
    entry="function",
    name="flash_backward",
    source="solutions/flash_attention_triton/training.py",
    goal="Let a program walk over the queries that see its keys: `dk` and `dv` stay "
    "with it, `dq` is added to memory.",
    requirements=(
        "`tile_gradients` of the last exercise takes each tile of queries in.",
        "Queries that see none of the program's keys are not loaded.",
        "Many programs add to the same rows of `dq`: `tl.atomic_add`.",
    ),
    problem=_backward_problem,
    reference=gradients,
    cases=(
        attention_case(128),
        attention_case(100, heads=2),
        attention_case(130, 32, regime="growing"),
        attention_case(1, 16),
    ),
    hidden=_backward_hidden,
    tolerance=Tolerance(factor=_FACTOR, scale=gradient_scales),
    near_misses=BACKWARD_BENDS,
    hints=(
        "Query i sees the keys up to i. Which is the first query that sees a key of "
        "this program, and which is the last?",
        "first goes from mine // ROWS * ROWS to n in steps of ROWS. Of each tile: "
        "rows; q and grad by load_rows; lse and dot by tl.load at head + rows, where "
        "rows < n; seen = (cols[None, :] <= rows[:, None]) & (rows[:, None] < n).",
        "dq, dk, dv = tile_gradients(q, k, v, grad, lse, dot, seen, scale, dk, dv); at "
        "= (head + rows)[:, None] * D + d[None, :]; tl.atomic_add(dq_ptr + at, dq, "
        "mask=rows[:, None] < n).",
    ),
    onward="Run it twice on a GPU: are the bits of dq the same? Why are those of dk?",
    counts=(
        # What is below the diagonal: three of four pairs of blocks. Of `out` is made,
        # before, a number a row, as `lse` is.
        moves({"q": 1.5, "grad": 1.5, "lse": 3, "out": 0}, writes=None)
    ),
    structure=(made_in_triton("load_rows", "tile_gradients", "store_rows"),),
    needs=("tile_gradients",),
    prelude=PRELUDE,
)  # fmt: skip
