"""The detective: a cache whose faults training never meets."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, Case, Exercise, Output, Outputs, Problem
from autograder.exercises.transformer.wide import PRELUDE, near, normal

_BASE = 10_000.0


def cached_case(start: int, new: int, spare: int, heads: int, size: int) -> Case:
    """Return a case of one shape, named as the learner reads it."""
    sizes = {"start": start, "new": new, "spare": spare, "heads": heads, "size": size}
    return Case(f"{new} tokens after {start}", sizes, dtype=torch.float64)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    start, new, spare, heads, size = case.sizes.values()
    cache = start + new + spare, heads, size
    return Problem(
        {
            "joined": normal(generator, new, 3, heads, size),
            "keys": normal(generator, *cache),
            "values": normal(generator, *cache),
            "start": start,
        },
        {
            "out": Output((new, heads, size), torch.float64),
            "keys": Output(cache, torch.float64),
            "values": Output(cache, torch.float64),
        },
    )


def _reference(arguments: Arguments) -> Outputs:
    joined = tensor(arguments, "joined")
    keys, values = (tensor(arguments, name).clone() for name in ("keys", "values"))
    start = arguments["start"]
    assert isinstance(start, int)
    new, _, _, size = joined.shape
    power = torch.arange(size // 2, dtype=torch.float64) * (-2 / size)
    out = torch.empty_like(joined[:, 0])
    for i in range(new):
        place = start + i
        angle = place * _BASE**power
        turn = torch.polar(torch.ones_like(angle), angle)
        q, k = (torch.complex(*joined[i, j].chunk(2, -1)) * turn for j in (0, 1))
        keys[place] = torch.cat((k.real, k.imag), -1)
        values[place] = joined[i, 2]
        turned = torch.cat((q.real, q.imag), -1)
        seen = keys[: place + 1], values[: place + 1]
        weights = ((seen[0] * turned).sum(-1) / size**0.5).softmax(0)
        out[i] = (weights[..., None] * seen[1]).sum(0)
    return {"out": out, "keys": keys, "values": values}


MISPLACED_TOKEN = Exercise(
    id="misplaced_token",
    title="It trains, and talks nonsense",
    kind="detective",
    points=20,
    language="python",
    entry="function",
    name="attend_cached",
    source="autograder/exercises/transformer/misplaced_token_answer.py",
    goal="Find why a model that trains well generates nonsense, and mend it.",
    requirements=(
        "`joined` is (new, 3, heads, size), float64, the tokens at positions start, "
        "start + 1, …; the caches are (max_len, heads, size) and hold what came "
        "before, with turned keys.",
        "Returned are (new, heads, size) and both caches, with the new tokens at "
        "their positions. What lies in the caches behind them is never read, and "
        "comes back as it was.",
        "A token sees itself and everything before it.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        cached_case(6, 4, 3, 2, 6),
        cached_case(9, 1, 2, 3, 4),
        cached_case(0, 7, 1, 2, 8),
        cached_case(1, 3, 0, 1, 2),
        cached_case(30, 5, 4, 2, 4),
        cached_case(2, 8, 5, 2, 4),
    ),
    tolerance=near(_reference),
    hints=(
        "Training calls it with start = 0. Compare one call with ten tokens to ten "
        "calls with one: which of the three results differs first?",
        "Two lines know nothing of start. One says where a token is, the other what it "
        "sees: print `seen` for start = 3 and two new tokens.",
        "turn(…, start) for queries and keys; and row i of the mask is position start "
        "+ i, so its diagonal lies start further right: tril(start).",
    ),
    onward="Which test of three lines, run before any training, finds both?",
    prelude=PRELUDE
    + "from autograder.worker.adapters.decoding import adapt_cached as __adapt__\n",
    shares={"correct": 1.0, "counts": 0.0, "speed": 0.0},
)
