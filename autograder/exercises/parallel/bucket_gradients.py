"""Which gradients travel together. Nothing is rounded: the answer is exact."""

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
    Tolerance,
)

REGIMES = {
    "mixed": "weights and biases",
    "exact": "some that fill a bucket exactly",
    "large": "some larger than a bucket",
    "small": "all in one bucket",
}


def bucket_case(count: int, limit: int, regime: str = "mixed") -> Case:
    """Return a case of so many parameters, named as the learner reads it."""
    name = f"{count} parameters, buckets of {limit:,} bytes, {REGIMES[regime]}"
    return Case(name, {"count": count, "limit": limit}, regime)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    count, limit = case.sizes["count"], case.sizes["limit"]
    most = {"large": 2 * limit, "small": limit // max(count, 1)}.get(
        case.regime, limit // 2
    )
    sizes = torch.randint(1, max(most // 4, 2), (count,), generator=generator) * 4
    if case.regime == "exact":
        sizes[::3], sizes[1::3], sizes[2::3] = limit // 4, limit // 2, limit // 4
    return Problem(
        {"sizes": sizes, "limit": limit},
        {
            "bucket": Output((count,), torch.int64),
            "place": Output((count,), torch.int64),
        },
    )


def _reference(arguments: Arguments) -> Outputs:
    limit = arguments["limit"]
    assert isinstance(limit, int)
    sizes = tensor(arguments, "sizes")
    bucket, place = torch.empty_like(sizes), torch.empty_like(sizes)
    which, at, room = -1, 0, -1
    for number, size in reversed(list(enumerate(sizes.tolist()))):
        if which < 0 or size > room:
            which, at, room = which + 1, 0, limit
        bucket[number], place[number] = which, at
        at, room = at + 1, room - size
    return {"bucket": bucket, "place": place}


BUCKET_GRADIENTS = Exercise(
    id="bucket_gradients",
    title="Gradients that travel together",
    kind="warm-up",
    points=10,
    language="python",
    entry="function",
    name="bucket_gradients",
    source="solutions/parallel/bucket_gradients.py",
    goal="Assign a model's parameters to buckets, in the order in which backward makes "
    "their gradients.",
    requirements=(
        "`sizes[i]` is the bytes of parameter i, in the order of the model. Return a "
        "list of buckets, each a list of parameters' numbers.",
        "The last parameter is the first bucket's first, and so on backwards: a bucket "
        "takes the next parameter as long as it has at most `limit` bytes with it.",
        "A parameter larger than `limit` has a bucket of its own; no bucket is empty. "
        "Of no parameters there are no buckets.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        bucket_case(16, 400),
        bucket_case(12, 400, "exact"),
        bucket_case(14, 400, "large"),
        bucket_case(9, 4000, "small"),
        bucket_case(1, 100),
        bucket_case(0, 100),
    ),
    tolerance=Tolerance(factor=0.0),
    hints=(
        "Which layer's gradients does backward compute first? In which order must the "
        "loop run, then?",
        "Keep the bytes of the bucket that is being filled. Before a parameter goes "
        "in, ask whether it still fits; if not, a new bucket begins, with 0 bytes.",
        "for number in reversed(range(len(sizes))): if not buckets or filled + "
        "sizes[number] > limit: buckets.append([]) and filled = 0; then "
        "buckets[-1].append(number) and filled += sizes[number].",
    ),
    onward="Let the first bucket be smaller than the others: what does that gain?",
    repeats=("sizes",),
    prelude="import torch\n"
    "from autograder.worker.adapters.averaging import adapt_buckets as __adapt__\n",
    shares={"correct": 1.0, "counts": 0.0, "speed": 0.0},
)
