"""What chapter 9's exercises share: cases, the right answer, and how near is right.

The tolerance. A score of fp32 is a sum of D products and errs by a few eps of the
largest of their sums of magnitudes, S; a weight is the exponential of scores and errs
relatively by as much; an output is a mean of values under these weights. So an output
may err by c eps (1 + S) max_j |v_j|: far less than what fp16 shows, where scores
are of the order of 1.
"""

from __future__ import annotations

import math

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Launch,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)

HEAD_DIM = 64
QUERIES = 64  # of a block

SHARES = {"correct": 0.6, "counts": 0.4, "speed": 0.0}
PRELUDE = "import math\n\nimport torch\n\nTensor = torch.Tensor\n"

BY_HAND = Structure(
    runs_no=("scaled_dot_product", "multi_head_attention", "flash_attention"),
    message="The values are right, and torch's own attention made them: write it with "
    "products, exponentials and sums.",
)
LDS = Structure(
    holds=("LDS",),
    message="The values are right, and the machine code reads no shared memory (LDS): "
    "every query reads every key from global memory itself.",
)

_REGIMES = {
    "distinct": "normal values",
    "rising": "scores that rise",
    "large": "scores up to 10,000",
    "low": "scores near -20,000",
}


def case_of(q_len: int, kv_len: int, regime: str = "distinct", **more: int) -> Case:
    """Return a case of one shape, named as the learner reads it."""
    sizes = {"heads": 1, "q_len": q_len, "kv_len": kv_len, **more}
    words = [f"{q_len:,} queries", f"{kv_len:,} keys"]
    if sizes["heads"] > 1:
        words.append(f"{sizes['heads']} heads")
    if "offset" in sizes:
        words.append(f"offset {sizes['offset']}")
    return Case(", ".join([*words, _REGIMES[regime]]), sizes, regime)


def draw_heads(
    case: Case, generator: torch.Generator, head_dim: int = HEAD_DIM
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw queries, keys and values, (heads, length, head_dim) each."""
    heads, q_len, kv_len = (case.sizes[n] for n in ("heads", "q_len", "kv_len"))
    q = torch.randn(heads, q_len, head_dim, generator=generator)
    k = torch.randn(heads, kv_len, head_dim, generator=generator)
    v = torch.randn(heads, kv_len, head_dim, generator=generator)
    if case.regime == "large":
        # Nearly whole multiples of some hundreds: weights are 1 or 0, and no mistake
        # leaves denormals, whose ratio would tell nothing.
        q, k = (60.0 * (x.clamp(-1, 1).round() + 1e-3 * x) for x in (q, k))
    elif case.regime == "rising":
        # All queries lean to one side, and each key further than the one before.
        steps = torch.linspace(-1.0, 1.0, kv_len)[:, None]
        q[..., :8] = q[..., :8].abs() + 0.5
        k[..., :8] = k[..., :8].abs() * 3.0 * steps
    elif case.regime == "low":
        # Whole eighths: products and their sums are exact in fp32, in every order, so
        # that scores which differ by 1 in 20,000 differ alike for everyone.
        q, k = ((8.0 * x).round() / 8.0 for x in (q, k))
        q[..., 0], k[..., 0] = 400.0, -50.0 * math.sqrt(head_dim)
    return q, k, v


def kernel_problem(
    case: Case,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
    threads: int = QUERIES,
) -> Problem:
    """Return a kernel's arguments, in the order of its parameters, and its launch."""
    q, k, v = (t.to(dtype) for t in draw_heads(case, generator))
    arguments: dict[str, torch.Tensor | int | float | None] = {
        "q": q,
        "k": k,
        "v": v,
        "out": None,
        "q_len": q.shape[1],
        "kv_len": k.shape[1],
    }
    if "offset" in case.sizes:
        arguments["offset"] = case.sizes["offset"]
    arguments["scale"] = 1.0 / math.sqrt(HEAD_DIM)
    grid = (-(-q.shape[1] // QUERIES), q.shape[0])
    outputs = {"out": Output(tuple(q.shape), dtype)}
    return Problem(arguments, outputs, Launch(grid, (threads,)))


def _seen(arguments: Arguments) -> torch.Tensor | None:
    """Return which query sees which key; ``None`` where all see all."""
    if "seen" in arguments:
        return tensor(arguments, "seen")
    if "offset" not in arguments:
        return None
    q, k, offset = tensor(arguments, "q"), tensor(arguments, "k"), arguments["offset"]
    assert isinstance(offset, int)
    i = torch.arange(q.shape[-2], device=q.device)[:, None]
    return torch.arange(k.shape[-2], device=q.device) <= i + offset


def reference(arguments: Arguments) -> Outputs:
    """Return softmax(scale q k^T) v in float64; what sees nothing gets zeros."""
    q, k, v = (tensor(arguments, n).double() for n in ("q", "k", "v"))
    attend = torch.nn.functional.scaled_dot_product_attention
    return {"out": attend(q, k, v, attn_mask=_seen(arguments)).nan_to_num(0.0)}


def _error(arguments: Arguments) -> Outputs:
    q, k, v = (tensor(arguments, n).double() for n in ("q", "k", "v"))
    most = (q.abs() @ k.abs().mT).amax(-1, keepdim=True) / math.sqrt(q.shape[-1])
    # Of all values, and not of the row's own: a known mistake weighs others.
    return {"out": (1.0 + most) * v.abs().amax((-2, -1), keepdim=True).expand_as(q)}


TOLERANCE = Tolerance(factor=4.0, scale=_error)


def _half_error(arguments: Arguments) -> Outputs:
    q, k, v = (tensor(arguments, n).double() for n in ("q", "k", "v"))
    weights = torch.softmax(q @ k.mT / math.sqrt(HEAD_DIM), -1)
    spread = (weights.square() @ v.square()).sqrt()
    return {"out": (weights @ v).abs() + 1.25 * spread}


# The output is rounded to fp16 (half a unit in the last place), and so is each weight,
# by 0.22 eps in the root mean square: their errors add like their squares, and 1.25 is
# over five times that.
HALF_TOLERANCE = Tolerance(factor=1.0, scale=_half_error)
