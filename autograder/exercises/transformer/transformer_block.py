"""One layer, from its input to its output, by lines of PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from autograder.drawing import tensor
from autograder.exercise import Arguments, Case, Exercise, Output, Outputs, Problem
from autograder.exercises.transformer.wide import PRELUDE, near, normal

_WEIGHTS = ("norms", "joined", "out", "gate", "up", "down")


def block_case(length: int, heads: int, kv_heads: int, size: int, d_ff: int) -> Case:
    """Return a case of one shape, named as the learner reads it."""
    sizes = {"length": length, "heads": heads, "kv_heads": kv_heads}
    sizes |= {"size": size, "d_ff": d_ff}
    words = f"{length} tokens, {heads} heads of {size}, {kv_heads} of keys"
    return Case(words, sizes, dtype=torch.float64)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    length, heads, kv_heads, size, d_ff = case.sizes.values()
    d, wide = heads * size, (heads + 2 * kv_heads) * size
    return Problem(
        {
            "x": normal(generator, length, d),
            "norms": 1 + normal(generator, 2, d, scale=0.3),
            "joined": normal(generator, wide, d, scale=2 / d**0.5),
            "out": normal(generator, d, d, scale=1 / d**0.5),
            "gate": normal(generator, d_ff, d, scale=1 / d**0.5),
            "up": normal(generator, d_ff, d, scale=1 / d**0.5),
            "down": normal(generator, d, d_ff, scale=1 / d_ff**0.5),
            "heads": heads,
            "kv_heads": kv_heads,
        },
        {"out": Output((length, d), torch.float64)},
    )


def _reference(arguments: Arguments) -> Outputs:
    x = tensor(arguments, "x")
    norms, joined, out, gate, up, down = (tensor(arguments, n) for n in _WEIGHTS)
    heads, kv_heads = arguments["heads"], arguments["kv_heads"]
    assert isinstance(heads, int) and isinstance(kv_heads, int)
    length, d = x.shape
    size = d // heads
    # A pair of features is a complex number, which the position turns.
    power = torch.arange(size // 2, dtype=torch.float64) * (-2 / size)
    angle = torch.arange(length)[:, None] * 10_000.0**power
    turns = torch.polar(torch.ones_like(angle), angle)
    h = x / (x.square().mean(1, keepdim=True) + 1e-5).sqrt() * norms[0]
    rows = (h @ joined.T).view(length, -1, size).transpose(0, 1)
    results = []
    for head in range(heads):
        other = heads + head // (heads // kv_heads)
        q, k = (torch.complex(*rows[i].chunk(2, 1)) * turns for i in (head, other))
        scores = (q @ k.mH).real / size**0.5
        scores += torch.full_like(scores, -torch.inf).triu(1)
        results.append(scores.softmax(1) @ rows[other + kv_heads])
    y = x + torch.cat(results, 1) @ out.T
    h = y / (y.square().mean(1, keepdim=True) + 1e-5).sqrt() * norms[1]
    return {"out": y + (F.silu(h @ gate.T) * (h @ up.T)) @ down.T}


TRANSFORMER_BLOCK = Exercise(
    id="transformer_block",
    title="A layer by hand",
    kind="core",
    points=25,
    language="python",
    entry="function",
    name="transformer_block",
    source="solutions/transformer/block.py",
    goal="Put a Llama-style layer together: norm, joined projection, rotary embedding, "
    "grouped causal attention, a residual; norm, gated MLP, a residual.",
    requirements=(
        "All is float64, and stays on x's device. Norms are RMS norms with eps 1e-5.",
        "`h @ joined.T` holds `heads` query heads, `kv_heads` key heads and `kv_heads` "
        "value heads, each of d / heads numbers; query head h reads key head "
        "h // (heads // kv_heads).",
        "Queries and keys, not values, are turned: of a head's halves a and b the "
        "pair (a[i], b[i]) by position * 10000 ** (-2 i / size), to (a cos - b sin, "
        "b cos + a sin). The first token is at position 0.",
        "Scores are divided by the root of a head's size; no token sees a later one.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        block_case(9, 4, 2, 6, 20),
        block_case(12, 6, 2, 4, 12),
        block_case(7, 3, 3, 8, 9),
        block_case(5, 4, 1, 2, 16),
        block_case(4, 1, 1, 4, 6),
        block_case(1, 2, 1, 4, 8),
    ),
    tolerance=near(_reference),
    hints=(
        "The residual stream x is touched twice, by an addition each; everything else "
        "reads a normalised copy. Write shapes beside the lines: (length, heads, "
        "size).",
        "(h @ joined.T).view(length, heads + 2 * kv_heads, size) splits along "
        "dimension 1. The angles are (length, 1, size / 2); t.chunk(2, -1) gives a and "
        "b. Grouped heads: repeat_interleave(heads // kv_heads, 1) of k and of v.",
        "scores = einsum('ihd,jhd->hij', q, k) / size**0.5; what lies above the "
        "diagonal (triu(1)) becomes -inf; softmax; einsum('hij,jhd->ihd'); "
        "reshape(length, d) @ out.T + x = y. Then y + (silu(h @ gate.T) * (h @ up.T)) "
        "@ down.T with h the second norm of y.",
    ),
    onward="Cut `angle` from float64 to float16 and plot the scores' error over 4,096 "
    "positions.",
    prelude=PRELUDE,
    shares={"correct": 1.0, "counts": 0.0, "speed": 0.0},
)
