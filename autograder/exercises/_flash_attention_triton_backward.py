"""Chapter 10's gradients: what they are, what they may err by, how they go wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    NearMiss,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.exercises._flash_attention_triton import (
    PRELUDE,
    STEM,
    TILE,
    TILE_BYTES,
    attention_case,
    draw,
    exact,
    made_in_triton,
    seen_causally,
    with_adapter,
)

_FACTOR = 4.0
_GRADS = ("dq", "dk", "dv")


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


def gradients(
    arguments: Arguments,
    *,
    dot: bool = True,
    scales: int = 1,
    dv_of: str = "p",
    half: bool = True,
    last: tuple[str, ...] = (),
    sign: float = 1.0,
    swapped: tuple[str, ...] = (),
) -> Outputs:
    """Return dq, dk and dv with a mistake; P and dS are rounded as the kernel does.

    Args:
        arguments: of the exercise.
        dot: whether D is taken away from dP.
        scales: how often the scale is multiplied.
        dv_of: ``p``, or what dV is made of instead: ``ds`` or ``dp``.
        half: round as the kernel does.
        last: for which of ``k`` and ``v`` the last tile of queries alone counts.
        sign: of D.
        swapped: ``p`` where P is not transposed for dV, ``ds`` where dS is not for dK.
    """
    q, k, _, grad, p, dp = _weights(arguments)

    def to(x: torch.Tensor) -> torch.Tensor:
        # A mistake's numbers may be far larger, and so its roundings.
        return x.half().double() if half else x

    row = (grad * tensor(arguments, "out").double()).sum(-1, keepdim=True)
    row = row if half else (p * dp).sum(-1, keepdim=True)
    ds = p * (dp - sign * row * dot)
    ds = ds.masked_fill(~seen_causally(arguments), 0.0)
    ds = to(ds * q.shape[3] ** (-0.5 * scales))
    of_v = {"p": to(p), "ds": ds, "dp": to(dp * seen_causally(arguments))}[dv_of]
    of_k = ds
    if last:
        at = torch.arange(ds.shape[2], device=ds.device)
        late = (at >= (ds.shape[2] - 1) // TILE * TILE)[:, None]
        of_k = of_k * late if "k" in last else of_k
        of_v = of_v * late if "v" in last else of_v
    return {
        "dq": ds @ k,
        "dk": _over_queries(of_k, q, "ds" in swapped),
        "dv": _over_queries(of_v, grad, "p" in swapped),
    }


def _over_queries(x: torch.Tensor, of: torch.Tensor, straight: bool) -> torch.Tensor:
    """Return x^T of; ``straight``: each tile of x is left as it lies."""
    if not straight:
        return x.mT @ of
    n = x.shape[2]
    pad = torch.nn.functional.pad
    x = pad(x, (0, -n % TILE, 0, -n % TILE))
    tiles = x.unflatten(3, (-1, TILE)).unflatten(2, (-1, TILE)).transpose(3, 4)
    # Tile (r, c) of queries and keys gives to keys c what lies at queries r.
    parts = pad(of, (0, 0, 0, -n % TILE)).unflatten(2, (-1, TILE))
    made: torch.Tensor = (tiles @ parts[:, :, :, None]).sum(2).flatten(2, 3)
    return made[:, :, :n]


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
    reference=lambda a: gradients(a, half=False),
    # Narrow heads: a gradient that lacks its scale is 4 times too large, and its
    # roundings are still below what the right one may err by.
    cases=(
        attention_case(128, 16),
        attention_case(100, 16, heads=2),
        attention_case(130, 32, heads=3, regime="growing"),
        attention_case(1, 16),
    ),
    hidden=lambda generator: _backward_hidden(generator, heads=3),
    tolerance=Tolerance(factor=_FACTOR, scale=gradient_scales),
    near_misses=(
        NearMiss(
            "row's dot forgotten",
            lambda a: gradients(a, dot=False),
            "dS is P * dP here: the normalisation takes part too, dS = P * (dP - D), "
            "with D_i = dO_i . O_i, which stands in dot.",
        ),
        NearMiss(
            "scale forgotten",
            lambda a: gradients(a, scales=0),
            "dq and dk are too large by sqrt(d): s is scale * q . k, so its gradient "
            "comes back through the same scale.",
        ),
        NearMiss(
            "scale twice",
            lambda a: gradients(a, scales=2),
            "dq and dk were multiplied by scale twice.",
        ),
        *(
            NearMiss(
                f"the last queries alone, {' and '.join(last)}",
                partial(gradients, last=last),
                f"d{' and d'.join(last)}: only what the last tile of queries gave is "
                "left. Add to what was there before, +=.",
            )
            for last in (("k",), ("v",), ("k", "v"))
        ),
        NearMiss(
            "D added",
            lambda a: gradients(a, sign=-1.0),
            "D is added to dP: dS = P * (dP - D).",
        ),
        NearMiss(
            "P not transposed",
            lambda a: gradients(a, swapped=("p",)),
            "dv is made of P, and P^T it must be: P is (ROWS, COLS), queries by keys, "
            "and dv has a row for each key.",
        ),
        NearMiss(
            "dS not transposed",
            lambda a: gradients(a, swapped=("ds",)),
            "dk is made of dS, and dS^T it must be: dS is (ROWS, COLS), queries by "
            "keys, and dk has a row for each key.",
        ),
        NearMiss(
            "dv of dp",
            lambda a: gradients(a, dv_of="dp"),
            "dv is made of dP: out = P v, so dv = P^T dO.",
        ),
        NearMiss(
            "dv of ds",
            lambda a: gradients(a, dv_of="ds"),
            "dv is made of dS: out = P v, so dv = P^T dO.",
        ),
    ),
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
_BACKWARD_LOADS = 4 * TILE_BYTES + 3 * (2 * TILE_BYTES + 2 * TILE * 4)


def _without_own_key(arguments: Arguments) -> Outputs:
    q, k, _, grad, p, dp = _weights(arguments)
    row = (grad * tensor(arguments, "out").double()).sum(-1, keepdim=True)
    p = p.tril(-1)
    ds = (p * (dp - row) * q.shape[3] ** -0.5).half().double()
    return {"dq": ds @ k, "dk": ds.mT @ q, "dv": p.half().double().mT @ grad}


def _within_a_tile(arguments: Arguments) -> Outputs:
    """Return what comes out where a program meets its own queries alone."""
    made = {name: torch.zeros_like(tensor(arguments, "q")).double() for name in _GRADS}
    for first in range(0, tensor(arguments, "q").shape[2], TILE):
        rows = slice(first, first + TILE)
        for name, value in _pairs(arguments, rows).items():
            made[name][:, :, rows] = value
    return made


def _last_keys_for_dq(arguments: Arguments) -> Outputs:
    """Return what is left where each program stores dq over the one before."""
    return {**gradients(arguments), "dq": _within_a_tile(arguments)["dq"]}


def _pairs(arguments: Arguments, at: slice) -> Outputs:
    """Return what the queries and the keys of one tile give to each other."""
    q, k, _, grad, p, dp = (x[:, :, at] for x in _weights(arguments))
    p, dp = p[..., at], dp[..., at]
    row = (grad * tensor(arguments, "out").double()[:, :, at]).sum(-1, keepdim=True)
    ds = (p * (dp - row) * q.shape[3] ** -0.5).half().double()
    return {"dq": ds @ k, "dk": ds.mT @ q, "dv": p.half().double().mT @ grad}


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
    reference=lambda a: gradients(a, half=False),
    cases=(
        attention_case(128),
        attention_case(100, heads=2),
        attention_case(130, 32, regime="growing"),
        attention_case(1, 16),
    ),
    hidden=_backward_hidden,
    tolerance=Tolerance(factor=_FACTOR, scale=gradient_scales),
    near_misses=(
        NearMiss(
            "own key hidden",
            _without_own_key,
            "A query does not see its own key: the comparison is cols <= rows.",
        ),
        NearMiss(
            "dq stored",
            _last_keys_for_dq,
            "dq holds what one tile of keys gave it, alone: many programs have a part "
            "of the same rows. Add, tl.atomic_add, where each stores over the others.",
        ),
        NearMiss(
            "own tile alone",
            _within_a_tile,
            "A program's keys meet the queries of its own tile alone: all later ones "
            "see them too, up to n.",
        ),
    ),
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
        Count(
            "bytes", "global", "load", at_most=1.05 * _BACKWARD_LOADS,
            ideal=_BACKWARD_LOADS,
        ),
    ),
    structure=(made_in_triton("load_rows", "tile_gradients", "store_rows"),),
    needs=("tile_gradients",),
    prelude=PRELUDE,
)  # fmt: skip
