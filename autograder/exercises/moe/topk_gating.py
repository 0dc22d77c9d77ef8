"""Gating: a Triton program a token; k times the largest logit left, and whose it is.

**Tolerance.** A weight is e / total, with e = exp(logit - maximum). The difference d is
rounded by eps/2 of itself, which moves e by d * eps/2 of itself; the exponential is off
by two units in the last place, and so is the division, 4 * eps in all. The total is
moved by the mean of its own d, weighed by e, and its k terms of one sign, in any order,
add eps * sqrt(k) at most. A factor of 2 leaves room for weights that are shares of all
experts first and are divided by the sum of the chosen ones then.
"""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)
from autograder.ideals import moves

_REGIMES = {
    "distinct": "normal logits",
    "ties": "each logit three times in its row",
    "masked": "many logits -inf, and a row of nothing else",
    "far": "logits near 1,000",
    "cold": "logits near -300",
}


def gating_case(tokens: int, experts: int, k: int, regime: str = "distinct") -> Case:
    """Return a case of one shape, named as the learner reads it."""
    name = f"{tokens:,} tokens, {experts} experts, k = {k}, {_REGIMES[regime]}"
    return Case(name, {"tokens": tokens, "experts": experts, "k": k}, regime)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    tokens, experts, k = (case.sizes[name] for name in ("tokens", "experts", "k"))
    logits = 2.0 * torch.randn(tokens, experts, generator=generator)
    if case.regime == "ties":
        third = -(-experts // 3)
        logits = logits[:, torch.arange(experts) % third]
    elif case.regime == "masked":
        drawn = torch.rand(tokens, experts, generator=generator)
        # More in the first rows, where fewer than k are left.
        logits[drawn < torch.linspace(0.8, 0.1, tokens)[:, None]] = -torch.inf
        logits[-1] = -torch.inf
    elif case.regime == "far":
        logits += 1_000.0
    elif case.regime == "cold":
        logits -= 300.0
    return Problem(
        {"logits": logits.contiguous(), "k": k},
        {
            "weights": Output((tokens, k), torch.float32),
            "experts": Output((tokens, k), torch.int32),
        },
    )


def _chosen(arguments: Arguments) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k largest logits in float64, and whose they are."""
    logits = tensor(arguments, "logits").double()
    order = torch.sort(logits, dim=1, descending=True, stable=True).indices
    experts = order[:, : int(arguments["k"])]
    return logits.gather(1, experts), experts


def _reference(arguments: Arguments) -> Outputs:
    values, experts = _chosen(arguments)
    return {"weights": torch.softmax(values, 1), "experts": experts.int()}


def _tolerated(arguments: Arguments) -> Outputs:
    values, experts = _chosen(arguments)
    weights = torch.softmax(values, 1).nan_to_num(0.0)
    below = (values[:, :1] - values).nan_to_num(0.0, 0.0, 0.0)
    mean = (weights * below).sum(1, keepdim=True)
    relative = 4.0 + experts.shape[1] ** 0.5 + below + mean
    return {"weights": weights * relative}


TOPK_GATING = Exercise(
    id="topk_gating",
    title="The k experts of a token",
    kind="warm-up",
    points=10,
    language="python",
    entry="function",
    name="topk_gating",
    source="solutions/moe/topk_gating.py",
    goal="Find each token's k largest logits and the softmax over those k, with one "
    "Triton program per token.",
    requirements=(
        "`logits` is (tokens, experts), fp32, contiguous, with any number of experts "
        "from 1 to 256; k is at most that.",
        "`topk_gating(logits, k)` returns `weights` (tokens, k), fp32, and `experts` "
        "(tokens, k), int32, by falling logit. Of equal logits the lower expert comes "
        "first.",
        "A logit may be -inf: such an expert comes after all others, with weight 0. No "
        "expert is chosen twice, even where fewer than k are above -inf. A row that "
        "holds nothing else gives NaN weights, and experts 0 to k - 1.",
        "Each logit is loaded once, each result stored once.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        gating_case(16, 64, 8),
        gating_case(9, 60, 3),
        gating_case(7, 100, 5, "ties"),
        gating_case(8, 21, 6, "masked"),
        gating_case(4, 12, 12),
        gating_case(3, 256, 8, "far"),
        gating_case(5, 37, 4, "cold"),
        gating_case(1, 40, 1),
        gating_case(3, 1, 1),
        gating_case(0, 8, 2),
    ),
    tolerance=Tolerance(2.0, scale=_tolerated),
    hints=(
        "One round finds the largest logit of those left, and whose it is; k rounds "
        "find k. What must hold of an expert that was found, so that the next round "
        "passes over it even where all that is left is -inf?",
        "Keep a mask `left`, at first e < experts. most = tl.max(tl.where(left, x, "
        'float("-inf")), 0); the expert is the tl.min of e where left & (x == most). '
        "Keep what was found in tensors of SLOTS: tl.where(slot == j, most, value).",
        "After the loop: share = tl.exp(value - tl.max(value, 0)), where slots from k "
        "on hold -inf; the weight is share / tl.sum(share, 0). Store both to row * k + "
        "slot, mask=slot < k. Launch topk_kernel[(tokens,)](..., "
        "BLOCK=triton.next_power_of_2(experts), SLOTS=triton.next_power_of_2(k)).",
    ),
    onward="From which k on would it be less work to sort the row once (tl.sort)?",
    counts=moves(),
    structure=(
        Structure(
            holds=("triton.jit", "tl.load", "tl.store"),
            lacks=("torch.topk", "torch.sort", "torch.softmax", "torch.exp"),
            runs_no=("topk", "sort", "argmax", "softmax", "logsumexp", "aten.exp."),
            message="The values are right, and it is not your Triton kernel alone that "
            "made them: the maxima, the exponentials and the sum belong into it.",
        ),
    ),
    prelude="import torch\nimport kernelwright as kw\n"
    "import triton\nimport triton.language as tl\n",
)
