"""Standard attention, in torch."""

from __future__ import annotations

import torch

from autograder.exercise import Case, Exercise, Output, Problem
from autograder.exercises.flash_attention.shared import (
    BY_HAND,
    PRELUDE,
    TOLERANCE,
    case_of,
    draw_heads,
    reference,
)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    q, k, v = draw_heads(case, generator, head_dim=16)
    seen = torch.rand(q.shape[1], k.shape[1], generator=generator) < 0.7
    seen[3::4] = False  # queries that see nothing
    seen[1::4] = True  # and such that see all
    return Problem(
        {"q": q, "k": k, "v": v, "seen": seen},
        {"out": Output(tuple(q.shape), torch.float32)},
    )


ATTENTION_REFERENCE = Exercise(
    id="attention_reference",
    title="Standard attention",
    kind="warm-up",
    points=10,
    language="python",
    entry="function",
    name="attention_reference",
    source="solutions/flash_attention/reference.py",
    goal="Write attention as its formula says it, with the whole matrix of scores.",
    requirements=(
        "q is (heads, q_len, head_dim); k and v are (heads, kv_len, head_dim).",
        "Scores are scaled by 1 / sqrt(head_dim); a softmax runs along the keys.",
        "seen is bool, (q_len, kv_len): hidden keys get weight 0, and the others of "
        "the row add up to 1.",
        "A query that sees no key gets zeros.",
        "Right for scores however high or low: up to 10,000, or all near -20,000.",
    ),
    problem=_problem,
    reference=reference,
    cases=(
        case_of(24, 40, heads=2),
        case_of(33, 31),
        case_of(1, 1),
        case_of(5, 1),
        case_of(16, 16),
        case_of(40, 57, "large"),
        case_of(13, 9, "low"),
    ),
    tolerance=TOLERANCE,
    hints=(
        "Three steps, three lines: scores, weights, output. What must happen to a "
        "hidden score so that its weight becomes 0?",
        "masked_fill(~seen, -math.inf) before the softmax. Then a row with nothing to "
        "see is 0 / 0: put zeros there.",
        "weights = torch.softmax(scores, dim=-1);  weights = torch.where(seen.any("
        "dim=-1, keepdim=True), weights, 0.0);  return weights @ v",
    ),
    onward="Measure its memory with kw.peak_memory, at 512 keys and at 1,024.",
    structure=(BY_HAND,),
    prelude=PRELUDE,
)
