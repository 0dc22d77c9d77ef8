"""Attention under a causal mask, without the tiles that nobody sees."""

from __future__ import annotations

from autograder.exercise import Case, Exercise
from autograder.exercises.flash_attention.shared import (
    LDS,
    SHARES,
    TOLERANCE,
    case_of,
    kernel_problem,
    reference,
)
from autograder.ideals import moves


def causal_case(
    q_len: int, kv_len: int, regime: str = "distinct", heads: int = 1, more: int = 0
) -> Case:
    """Return a case whose last query sees ``more`` keys than there are, or fewer."""
    return case_of(q_len, kv_len, regime, heads=heads, offset=kv_len - q_len + more)


FLASH_CAUSAL = Exercise(
    id="flash_causal",
    title="Causal, and no tile too many",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="flash_causal",
    source="solutions/flash_attention/causal.cu",
    goal="Let query i see the keys up to i + offset only, and do not touch tiles that "
    "no query of the block sees.",
    requirements=(
        "Scores are hidden before the maximum is taken.",
        "A tile that no query of the block sees is neither loaded nor computed. Rows "
        "from q_len on are no queries: in the last block fewer may look.",
        "A query that sees no key gets zeros, not NaN: offset may be negative. It may "
        "reach beyond the last key, too.",
    ),
    problem=kernel_problem,
    reference=reference,
    # Of 160 queries the block b brings the keys before 64 (b + 1), and the last, which
    # is not full, those before 160 of the 176.
    cases=(
        causal_case(160, 176, more=-16),
        causal_case(70, 77),
        causal_case(100, 30),
        causal_case(1, 1),
        causal_case(33, 70, heads=2, more=8),
        causal_case(64, 80, "rising"),
        causal_case(80, 80, "large"),
        causal_case(9, 21, "low", more=3),
    ),
    tolerance=TOLERANCE,
    hints=(
        "Which query of the block sees the most keys? No tile behind its last key "
        "needs to be brought.",
        "int last = min(first + QUERIES, q_len) - 1; stop = min(kv_len, last + offset "
        "+ 1). In the loop over j a score is -INFINITY where start + j >= kv_len or "
        "start + j > row + offset, and higher becomes the maximum.",
        "score[j] = kw::dot(query, keys[j]), hidden or not; higher = fmaxf(higher, "
        "score[j]). Then base = higher == -INFINITY ? 0.0f : higher. At the end: if "
        "(weight > 0.0f) share = 1.0f / weight.",
    ),
    onward="Only the last tiles of a block need the comparison: split the loop in two.",
    counts=(
        # The blocks see 64, 128 and 160 of the 176 keys.
        moves({"k": 352 / 176, "v": 352 / 176}, asked=True, times=1)
    ),
    structure=(LDS,),
    shares=SHARES,
)
