"""What chapter 10's exercises share: draws, exact attention, the tolerance.

**Tolerance.** With fp16 inputs the products and sums are fp32. What is rounded to fp16
is each weight p before its product with v, and the output, by eps / 2 relative each
(eps = 2^-10). So an output errs by at most eps * sum_j p_j |v_j|, and 1.5 leaves room
for fp32's own roundings. Gradients round dS in the same way, and out, from which D_i
comes; ``gradients.py`` adds up what each rounding moves.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)

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


# Where the products are those of absorb, the first exercise's.
BY_ABSORB = made_in_triton("load_rows", "absorb", "store_rows")


def with_adapter(name: str) -> str:
    """Return the chapter's imports, and the kernel that calls a part of one."""
    return (
        f"{PRELUDE}from autograder.worker.adapters.tiles import {name} as __adapt__\n"
    )


def attention_case(
    n: int, d: int = 64, *, heads: int = 1, regime: str = "normal", **more: int
) -> Case:
    """Return a case; more sizes are ``batch``, ``kv_heads`` and ``keys``."""
    said = {
        "normal": "normal values",
        "growing": "later keys larger",
        "large": "large",
        "low": "all logits near -20,000",
        "even": "weights alike, large values",
    }
    extra = "".join(f", {name} = {size}" for name, size in more.items())
    return Case(
        f"n = {n}, heads = {heads}, d = {d}{extra}, {said[regime]}",
        {"n": n, "d": d, "heads": heads, **more},
        regime,
        torch.float16,
    )


# Two heads of two tiles: q once, and all of k and v for each tile of queries.
FULL_CASES = (
    attention_case(128, heads=2),
    attention_case(100, heads=2),
    attention_case(150, 32, regime="growing"),
    attention_case(1),
    attention_case(130, 16, regime="large"),
    attention_case(70, 16, regime="low"),
    attention_case(100, 16, regime="even"),
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
    elif case.regime == "low":
        # What a hidden key's 0 would outweigh, or its -10,000. Whole eighths, so that
        # fp32 holds products and sums exactly.
        q, k = ((8 * x).round() / 8 for x in (q, k))
        q[..., 0], k[..., 0] = 400, -50 * math.sqrt(d)
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
    return seen_by_all(arguments).tril(k.shape[2] - q.shape[2])


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


def full(arguments: Arguments) -> Outputs:
    """Return attention in which every query sees every key."""
    return {"out": exact(arguments, seen_by_all)}


def causal(arguments: Arguments) -> Outputs:
    """Return attention in which a query sees no key after itself."""
    return {"out": exact(arguments, seen_causally)}


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
