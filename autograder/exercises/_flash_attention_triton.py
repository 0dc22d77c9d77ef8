"""What chapter 10's exercises share: draws, exact attention, walks that go wrong.

**Tolerance.** With fp16 inputs the products and sums are fp32. What is rounded to fp16
is each weight p before its product with v, and the output, by eps / 2 relative each
(eps = 2^-10). So an output errs by at most eps * sum_j p_j |v_j|, and 1.5 leaves room
for fp32's own roundings. Gradients round dS in the same way, and out, from which D_i
comes; ``gradient_scales`` adds up what each rounding moves.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    NearMiss,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)

STEM = "flash_attention_triton"
TILE = 64  # queries and keys a step, as the stubs say
TILE_BYTES = TILE * 64 * 2  # of 64 rows of 64 numbers in fp16
PRELUDE = (
    "import torch\nimport kernelwright as kw\n"
    "import triton\nimport triton.language as tl\n"
    "from kernelwright.rows import load_rows, store_rows\n"
)
FACTOR = 1.5
_ROWS_AT_ONCE = 2048  # of the exact attention: 2048 * 16384 doubles are 268 MB

_BY_TORCH = (
    "torch.matmul", "torch.bmm", "torch.einsum", "torch.softmax", "torch.baddbmm",
    "scaled_dot_product_attention",
)  # fmt: skip
_MESSAGE = (
    "The values are right, and it is not a Triton kernel alone that made them: the "
    "products belong into tl.dot, and no matrix of n * n numbers into memory."
)


def made_in_triton(*needed: str, message: str = _MESSAGE) -> Structure:
    """Demand a kernel with these names in it, and torch's attention nowhere."""
    return Structure(holds=("triton.jit", *needed), lacks=_BY_TORCH, message=message)


# Not tl.load: descriptors load tiles by methods of their own.
IN_TRITON = made_in_triton("tl.dot")
# Where the products are those of absorb, the first exercise's.
BY_ABSORB = made_in_triton("load_rows", "absorb", "store_rows")


def with_adapter(name: str) -> str:
    """Return the chapter's imports, and the kernel that calls a part of one."""
    return f"{PRELUDE}from autograder.worker.tiles import {name} as __adapt__\n"


def attention_case(
    n: int, d: int = 64, *, heads: int = 1, regime: str = "normal", **more: int
) -> Case:
    """Return a case; more sizes are ``batch``, ``kv_heads`` and ``keys``."""
    said = {
        "normal": "normal values",
        "growing": "later keys larger",
        "large": "large",
        "low": "all logits far below 0",
        "even": "weights alike, large values",
    }
    extra = "".join(f", {name} = {size}" for name, size in more.items())
    return Case(
        f"n = {n}, heads = {heads}, d = {d}{extra}, {said[regime]}",
        {"n": n, "d": d, "heads": heads, **more},
        regime,
        torch.float16,
    )


def draw(
    case: Case, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw q (batch, heads, n, d), k and v (batch, kv_heads, keys, d), fp16."""
    size = case.sizes
    heads, n, d = size["heads"], size["n"], size["d"]
    kv_heads, keys = size.get("kv_heads", heads), size.get("keys", n)

    def normal(*shape: int) -> torch.Tensor:
        shape = (size.get("batch", 1), *shape)
        return torch.randn(shape, generator=generator, device=generator.device).half()

    q, k, v = normal(heads, n, d), normal(kv_heads, keys, d), normal(kv_heads, keys, d)
    if case.regime == "growing":  # every tile moves the running maximum
        k = k * torch.linspace(0.1, 3, keys, device=k.device).half()[:, None]
    elif case.regime == "large":  # logits of some hundreds: exp alone overflows
        q = q * 40
    elif case.regime == "low":  # what a hidden key's 0 would outweigh
        q, k = 100 * q.abs(), -k.abs()
    elif case.regime == "even":  # the sum of weights times values leaves fp16
        q, v = q / 16, (v + 2) * 2000
    return q, k, v + 0.5


def seen_by_all(arguments: Arguments) -> torch.Tensor:
    """Say that every query sees every key."""
    q, k = tensor(arguments, "q"), tensor(arguments, "k")
    return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)


def seen_causally(arguments: Arguments) -> torch.Tensor:
    """Say that query i sees keys up to its own; the last query sees the last key."""
    q, k = tensor(arguments, "q"), tensor(arguments, "k")
    n, keys = q.shape[2], k.shape[2]
    return torch.ones(n, keys, dtype=torch.bool, device=q.device).tril(keys - n)


def spread(arguments: Arguments) -> tuple[torch.Tensor, torch.Tensor]:
    """Return k and v with a head for each query head: h reads h // group."""
    group = tensor(arguments, "q").shape[1] // tensor(arguments, "k").shape[1]
    k = tensor(arguments, "k").repeat_interleave(group, 1)
    return k, tensor(arguments, "v").repeat_interleave(group, 1)


Seen = Callable[[Arguments], torch.Tensor]


def exact(arguments: Arguments, seen: Seen, absolute: bool = False) -> torch.Tensor:
    """Return softmax(q k^T / sqrt(d)) v in float64; of |v| where that is asked."""
    q = tensor(arguments, "q").double()
    k, v = (t.double() for t in spread(arguments))
    v = v.abs() if absolute else v
    out = torch.empty_like(q)
    visible = seen(arguments)
    for head in range(q.shape[1]):  # a head at a time: the timed case is large
        for top in range(0, q.shape[2], _ROWS_AT_ONCE):
            rows = slice(top, top + _ROWS_AT_ONCE)
            s = q[:, head, rows] @ k[:, head].mT / math.sqrt(q.shape[3])
            s = s.masked_fill(~visible[rows], -math.inf)
            out[:, head, rows] = torch.softmax(s, -1) @ v[:, head]
    return out


def tolerance(seen: Seen) -> Tolerance:
    """Return the bound that the head of this file derives."""
    return Tolerance(
        factor=FACTOR, scale=lambda a: {"out": exact(a, seen, absolute=True)}
    )


def forward_problem(case: Case, generator: torch.Generator) -> Problem:
    """Ask for out of q, k and v."""
    q, k, v = draw(case, generator)
    return Problem(
        {"q": q, "k": k, "v": v}, {"out": Output(tuple(q.shape), torch.float16)}
    )


def walk(
    arguments: Arguments,
    seen: Seen,
    *,
    shrink_acc: bool = True,
    shrink_total: bool = True,
    upside_down: bool = False,
    scales: int = 1,
    tail_hidden: bool = True,
    tail_only_last: bool = False,
    keep_before: bool = True,
    anew: bool = False,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
) -> Outputs:
    """Do the online softmax as the kernel does it, tile by tile, with mistakes."""
    q = tensor(arguments, "q").float()
    spread_k, spread_v = spread(arguments)
    k = (spread_k if k is None else k).float()
    v = (spread_v if v is None else v).float()
    visible = seen(arguments)
    keys = k.shape[2]
    if not tail_hidden or tail_only_last:
        # Past the end loads give 0, and a product of 0 is a logit. Under a causal
        # mask only the queries of the last tile come there.
        more = -keys % TILE
        pad = torch.nn.functional.pad
        k, v = pad(k, (0, 0, 0, more)), pad(v, (0, 0, 0, more))
        visible = pad(visible, (0, more), value=True)
        if tail_only_last:
            own = torch.arange(visible.shape[0], device=q.device) // TILE * TILE
            past = torch.arange(visible.shape[1], device=q.device) >= keys
            visible &= ~past | (own[:, None] + TILE >= keys)
    most = torch.full((*q.shape[:3], 1), -math.inf, device=q.device)
    total, acc = torch.zeros_like(most), torch.zeros_like(q)
    scale = q.shape[3] ** (-0.5 * scales)
    for first in range(0, k.shape[2], TILE):
        tile = slice(first, first + TILE)
        s = (q @ k[:, :, tile].mT * scale).masked_fill(~visible[:, tile], -math.inf)
        new = s.amax(-1, keepdim=True)
        new = new if anew else torch.maximum(most, new)
        safe = new.masked_fill(new == -math.inf, 0.0)
        p = torch.exp(s - safe)
        before = most.masked_fill(most == -math.inf, 0.0) if upside_down else most
        shrink = torch.exp(safe - before) if upside_down else torch.exp(most - safe)
        total = total * (shrink if shrink_total else 1) + p.sum(-1, keepdim=True)
        earlier = acc * (shrink if shrink_acc else 1) if keep_before else 0.0
        acc = earlier + p.half().float() @ v[:, :, tile]  # rounded as in the kernel
        most = new
    return {"out": acc / total}


def last_tile_alone(arguments: Arguments) -> Outputs:
    """Attend to the keys of the last tile only."""
    at = (tensor(arguments, "k").shape[2] - 1) // TILE * TILE
    k, v = (tensor(arguments, name)[:, :, at:] for name in "kv")
    return {"out": exact({**arguments, "k": k, "v": v}, seen_by_all)}


def nothing_but_nan(arguments: Arguments) -> Outputs:
    """Return what is left where an infinity met a 0 or another one."""
    return {"out": torch.full_like(tensor(arguments, "q"), torch.nan)}


def walk_misses(seen: Seen) -> tuple[NearMiss, ...]:
    """Return the known mistakes of the online softmax itself."""
    return (
        NearMiss(
            "maximum of the tile alone",
            lambda a: walk(a, seen, anew=True),
            "new is the maximum of this tile alone, so a tile of low logits makes "
            "shrink overflow: tl.maximum(most, tl.max(s, 1)).",
        ),
        NearMiss(
            "nothing but NaN",
            nothing_but_nan,
            "Every number is NaN: an infinity met a 0 or another infinity. Before the "
            "first tile most is -inf, so exp(most - new) is 0, as it should be, and "
            "exp(new - most) or exp(s - most) is infinite.",
        ),
        NearMiss(
            "acc not shrunk",
            lambda a: walk(a, seen, shrink_acc=False),
            "acc still stands relative to the old maximum: multiply it by "
            "exp(most - new) before this tile is added, as total is.",
        ),
        NearMiss(
            "total not shrunk",
            lambda a: walk(a, seen, shrink_total=False),
            "total still stands relative to the old maximum: multiply it by "
            "exp(most - new) before this tile's weights are added, as acc is.",
        ),
        NearMiss(
            "nothing shrunk",
            lambda a: walk(a, seen, shrink_acc=False, shrink_total=False),
            "Neither total nor acc is brought to the new maximum: both must be "
            "multiplied by exp(most - new) before this tile is added.",
        ),
        NearMiss(
            "shrunk upside down",
            lambda a: walk(a, seen, upside_down=True),
            "The factor is upside down: a larger maximum makes what was there smaller, "
            "exp(most - new), not exp(new - most).",
        ),
        NearMiss(
            "scale forgotten",
            lambda a: walk(a, seen, scales=0),
            "The products q . k are not multiplied by scale.",
        ),
        NearMiss(
            "scale twice",
            lambda a: walk(a, seen, scales=2),
            "The products q . k are multiplied by scale twice.",
        ),
        NearMiss(
            "tiles before forgotten",
            lambda a: walk(a, seen, keep_before=False),
            "out holds the last tile's keys alone: add to acc, do not replace it.",
        ),
    )


TAIL_SEEN = NearMiss(
    "keys past the end",
    lambda a: walk(a, seen_by_all, tail_hidden=False),
    "The keys past the end take part: a masked load gives 0, and exp(0 - max) is a "
    "weight like any other. Where seen is false the logit must be -inf.",
)


def nan_where(out: torch.Tensor, dead: torch.Tensor) -> torch.Tensor:
    """Put NaN into the rows that saw nothing: 0 / 0."""
    return torch.where(dead[None, None, :, None], torch.nan, out)


def walk_first_head(arguments: Arguments, seen: Seen) -> Outputs:
    """Attend with the keys and values of head 0, for every query head."""
    shape = (-1, tensor(arguments, "q").shape[1], -1, -1)
    k, v = (tensor(arguments, name)[:, :1].expand(shape) for name in "kv")
    return walk(arguments, seen, k=k, v=v)
