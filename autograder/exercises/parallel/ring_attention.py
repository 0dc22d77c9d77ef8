"""Attention whose keys go round: values, messages, and what a rank holds.

**Tolerance.** Scores, exponentials and sums in fp32, then n merges, each a rounding of
out and lse: 16 eps beside the largest value; the log-sum-exp's error is that of a
score, of up to 20 eps-units of it, in the exponent.
"""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)
from autograder.exercises.parallel.shared import PRELUDE, SHARES, largest


def ring_case(
    ranks: int, heads: int, tokens: int, d: int, causal: int, size: str = "distinct"
) -> Case:
    """Return a case; ``tokens`` are those of each rank."""
    kind = "causal" if causal else "all keys"
    name = f"{ranks} ranks, {heads} heads, {tokens} tokens each, d = {d}, {kind}"
    name += ", large scores" if size == "large" else ""
    sizes = {"ranks": ranks, "heads": heads, "tokens": tokens, "d": d}
    return Case(name, {**sizes, "causal": causal}, size)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    ranks, heads, tokens, d, causal = case.sizes.values()
    shape = (ranks, heads, tokens, d)
    q, k, v = (torch.randn(shape, generator=generator) for _ in range(3))
    if case.regime == "large":  # some ranks' keys outweigh the others by far
        k = k * (1 + 12 * torch.arange(ranks).flip(0)).view(-1, 1, 1, 1)
        # All of them are some 120: exp of that is more than a float32 holds.
        q[..., 0], k[..., 0] = 4.0, k[..., 0] + 30 * d**0.5
    return Problem(
        {"q": q, "k": k, "v": v, "causal": causal},
        {
            "out": Output(shape, torch.float32),
            "lse": Output(shape[:3], torch.float32),
        },
        ranks=ranks,
    )


def _reference(arguments: Arguments) -> Outputs:
    q, k, v = (tensor(arguments, name).double() for name in ("q", "k", "v"))
    ranks, heads, tokens, d = q.shape
    # (heads, all tokens, d): the ranks' parts one behind the other.
    q, k, v = (t.transpose(0, 1).reshape(heads, -1, d) for t in (q, k, v))
    scores = q @ k.mT * d**-0.5
    if arguments["causal"]:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    out = scores.softmax(-1) @ v
    lse = scores.logsumexp(-1)
    return {
        "out": out.view(heads, ranks, tokens, d).transpose(0, 1),
        "lse": lse.view(heads, ranks, tokens).transpose(0, 1),
    }


RING_ATTENTION = Exercise(
    id="ring_attention",
    title="Keys that go round",
    kind="ladder",
    points=25,
    language="python",
    entry="ranks",
    name="ring_attention",
    source="solutions/parallel/ring_forward.py",
    goal="Attend to all ranks' keys, which are passed on while they are attended to, "
    "and which no rank ever holds all of.",
    requirements=(
        "Rank r has the r-th part of the tokens in q, k and v. Return out and lse of "
        "its own queries, as if one process had all keys; `attend` does it for the "
        "keys that are at hand.",
        "If causal, no query sees a later key, and a rank attends only to keys that "
        "some query of it sees.",
        "k and v go to the next rank, `(rank + 1) % n`, n - 1 times, by `dist.isend` "
        "and `dist.irecv`: begun before a product, waited for after it.",
        "A rank holds two pairs of k and v at most, those at hand and those that come.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        ring_case(3, 2, 16, 8, 0),
        ring_case(3, 2, 16, 8, 1),
        ring_case(2, 1, 5, 4, 1, "large"),
        ring_case(1, 2, 3, 4, 1),
        ring_case(6, 2, 8, 64, 1),
    ),
    tolerance=Tolerance(
        16.0,
        lambda case: 20 if case.regime == "large" else 1,
        lambda arguments: largest(_reference(arguments)),
    ),
    hints=(
        "After s steps, whose keys are at hand? Rank r has those of (r - s) % n. Two "
        "results over different keys are merged by their lse, as in chapter 10's split "
        "KV cache.",
        "both = torch.logaddexp(lse, its); each out weighs by exp of its own lse minus "
        "both. For causal: keys of a later rank are skipped, those of the own rank are "
        "masked, all earlier ones are seen whole. Pass them on in any case.",
        "held = torch.stack((k, v)); each step but the last: coming = "
        "torch.empty_like(held), sent = dist.isend(held, following), got = "
        "dist.irecv(coming, before); attend to held; got.wait(), sent.wait(), held = "
        "coming.",
    ),
    onward="Rank n - 1 has most to do, if causal. Give each rank a piece from the "
    "front and one from the back: who waits now?",
    counts=(
        # k and v in one message, or in two.
        Count("messages", ideal=2, times=2),
        Count("sent bytes", ideal=2 * 2 * 4 * 2 * 16 * 8, times=1.0),
    ),
    structure=(
        Structure(
            runs_no=("all_gather", "allgather", "scaled_dot_product"),
            message="The values are right, and every rank has gathered all keys: pass "
            "them on, so that it holds two pairs at most.",
        ),
    ),
    prelude=PRELUDE
    + "from autograder.worker.adapters.round_the_ring import adapt_ring as __adapt__\n",
    shares=SHARES,
)
