"""The weights of attention, made tile by tile in two walks over the keys.

**Tolerance.** A score is a sum of d products, exact in fp32, of both signs: added in
any order it is off by eps * sqrt(d) of the largest that it could be, |scale| * |q| *
|k|, give or take; and the scale, the maximum's subtraction and the exponential add
2 * eps of the score's distance from the maximum and 2 * eps beside. The total moves as
its terms do, and its m terms add eps * sqrt(m). All this moves a weight by that much of
itself, in eps of fp32, twice: once above the line, once below. What is rounded to fp16
gets 1 eps of fp16 more, where rounding once takes 0.5: either neighbour is right, and
weights in fewer bits are not.
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
    Speed,
    Structure,
    Tolerance,
)
from autograder.ideals import moves, products

HALF = torch.float16
_TILE = 64
_TIMED = 16_384
_REGIMES = {
    "distinct": "normal values",
    "growing": "later keys score higher",
    "falling": "later keys score lower",
    "far": "scores of some 1,000",
    "below": "all scores near -300",
    "deep": "all scores near -20,000",
}


def score_case(n: int, m: int, d: int, regime: str = "distinct") -> Case:
    """Return a case of one shape, named as the learner reads it."""
    name = f"{n:,} queries, {m:,} keys, d = {d}, {_REGIMES[regime]}"
    return Case(name, {"n": n, "m": m, "d": d}, regime, HALF)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n, m, d = (case.sizes[name] for name in ("n", "m", "d"))
    q, k = (
        torch.randn(n, d, generator=generator),
        torch.randn(m, d, generator=generator),
    )
    scale = 0.8 * d**-0.5  # no number that a kernel could know
    if case.regime in ("growing", "falling"):
        # What all queries have in common, the keys have more and more of.
        q[:, 0] = 4.0
        steps = torch.linspace(-1.0, 1.0, m) * d**0.5
        k[:, 0] = steps if case.regime == "growing" else -steps
    elif case.regime == "far":
        q, k = 12.0 * q, 12.0 * k
    elif case.regime == "below":
        q[:, 0], k[:, 0] = 30.0, -10.0 * d**0.5
    elif case.regime == "deep":
        q[:, 0], k[:, 0] = 100.0, -250.0 * d**0.5
    return Problem(
        {"q": q.to(case.dtype), "k": k.to(case.dtype), "scale": scale},
        {"out": Output((n, m), case.dtype)},
    )


def _scores(arguments: Arguments) -> torch.Tensor:
    q, k = tensor(arguments, "q").double(), tensor(arguments, "k").double()
    return q @ k.T * float(arguments["scale"])


def _reference(arguments: Arguments) -> Outputs:
    return {"out": torch.softmax(_scores(arguments), 1)}


def _tolerated(arguments: Arguments) -> Outputs:
    s = _scores(arguments)
    if not s.numel():
        return {"out": s}
    q, k = tensor(arguments, "q").double(), tensor(arguments, "k").double()
    reach = q.norm(dim=1)[:, None] * k.norm(dim=1) * abs(float(arguments["scale"]))
    moved = q.shape[1] ** 0.5 * reach + 2.0 * (s.amax(1, keepdim=True) - s) + 2.0
    p = torch.softmax(s, 1)
    total = (p * moved).sum(1, keepdim=True) + s.shape[1] ** 0.5
    narrow = torch.finfo(torch.float32).eps / torch.finfo(HALF).eps
    return {"out": p * (1.0 + narrow * (moved + total))}


def _eager(arguments: Arguments) -> torch.Tensor:
    q, k = tensor(arguments, "q"), tensor(arguments, "k")
    return torch.softmax(q @ k.T * float(arguments["scale"]), 1)


ATTENTION_SCORE = Exercise(
    id="attention_score",
    title="The weights of attention",
    kind="core",
    points=20,
    language="python",
    entry="function",
    name="attention_score",
    source="solutions/fusion/attention_score_triton.py",
    goal="Compute `softmax(scale * q @ k.T)` in one Triton kernel that writes each "
    "weight once and reads no score back: the second walk over the keys computes the "
    "scores again.",
    requirements=(
        "q is (n, d) and k is (m, d), contiguous, fp16; d is 16, 32, 64 or 128. out is "
        "(n, m), fp16.",
        "A program owns 64 queries and walks twice over k in tiles of 64. The first "
        "walk keeps each row's maximum and total, by the online rule of chapter 8.",
        "Scores, maximum, total and quotient are fp32; a weight is rounded once, when "
        "it is stored.",
        "n and m need not be multiples of 64. n * m may exceed 2^31.",
        "`load_rows(ptr, 0, rows, length, D)` of `kernelwright.rows` is there: a tile "
        "of rows, with zeros from row `length` on.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        score_case(192, 256, 32),
        score_case(100, 130, 64),
        score_case(65, 300, 16, "growing"),
        score_case(40, 200, 16, "falling"),
        score_case(33, 129, 32, "far"),
        score_case(31, 63, 32, "below"),
        score_case(5, 1, 128),
        score_case(1, 65, 16),
        score_case(0, 4, 16),
    ),
    tolerance=Tolerance(1.0, scale=_tolerated),
    hints=(
        "Which two numbers per row does the second walk need from the first? They are "
        "what online_update of chapter 8 keeps. What score must a key past the end "
        "have, so that it changes neither?",
        "tile_scores: tl.dot(q, tl.trans(k)) * scale, and tl.where(cols[None, :] < m, "
        'that, float("-inf")). A new maximum makes what was added before too large: '
        "multiply it by tl.exp(most - new).",
        "Second walk: p = tl.exp(s - most[:, None]) / total[:, None], to row "
        "rows[:, None].to(tl.int64) * m + cols[None, :], where both are inside. Launch "
        "(triton.cdiv(n, 64),) with D=d, TILE=64.",
    ),
    onward="Each score is computed twice. From which d on would it be cheaper to write "
    "it and read it back?",
    # Three programs walk over all keys twice.
    # Two products, or the one twice, of 192 x 256 scores.
    counts=(*moves({"k": 2 * 192 / _TILE}), *products(2 * 192 * 256 * 32)),
    structure=(
        Structure(
            holds=("triton.jit", "tl.dot", "tl.store"),
            lacks=("torch.softmax", "torch.matmul", "torch.exp"),
            runs_no=("softmax", "logsumexp", "matmul", "aten.mm", "aten.exp."),
            message="The values are right, and it is not your Triton kernel alone that "
            "made them: the products, the exponentials and the sums belong into it.",
        ),
    ),
    speed=Speed(
        peer="PyTorch's three kernels",
        case=score_case(_TIMED, _TIMED, 64),
        run_peer=_eager,
        # Written once; what is read is next to nothing.
        bytes_moved=lambda case: 2 * case.sizes["n"] * case.sizes["m"],
        bands={"bronze": 0.50, "silver": 0.75, "gold": 1.00},
    ),
    prelude="import torch\nimport kernelwright as kw\n"
    "import triton\nimport triton.language as tl\n"
    "from kernelwright.rows import load_rows\n",
)
