"""Two summaries of numbers made one."""

from __future__ import annotations

import torch

from autograder.drawing import tensor, vector_case
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.exercises.layernorm.shared import THREADS
from autograder.ideals import moves


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]

    def summaries() -> torch.Tensor:
        least, most = (50_000, 200_000) if case.regime == "many" else (1, 1000)
        counts = torch.randint(
            least, most, (n,), generator=generator, device=generator.device
        ).float()
        mean = 3.0 * torch.randn(n, generator=generator)
        if case.regime == "offset":
            mean += 1000.0
        m2 = counts * (0.1 + torch.rand(n, generator=generator))
        return torch.stack((counts, mean, m2), 1)

    a, b = summaries(), summaries()
    if case.regime == "zeros":  # nothing seen yet, on one side or on both
        a[::3] = 0.0
        b[::4] = 0.0
        # One number, and nothing on the other side.
        for one, none in ((a[1::12], b[1::12]), (b[3::12], a[3::12])):
            one[:, 0], one[:, 2] = 1.0, 0.0
            none.zero_()
    elif case.regime == "single":
        b[:, 0], b[:, 2] = 1.0, 0.0
    return Problem(
        {"a": a, "b": b, "out": None, "n": n},
        {"out": Output((n, 3), torch.float32)},
        Launch((max(1, -(-n // THREADS)),), (THREADS,)),
    )


def _reference(arguments: Arguments) -> Outputs:
    # Both sides' squares about the common mean. The answer is another form of it.
    a, b = (tensor(arguments, name).double() for name in "ab")
    (na, ma, sa), (nb, mb, sb) = a.unbind(1), b.unbind(1)
    count = na + nb
    mean = (na * ma + nb * mb) / count.clamp(min=1.0)
    m2 = sa + na * (ma - mean) ** 2 + sb + nb * (mb - mean) ** 2
    return {"out": torch.stack((count, mean, m2), 1)}


def _scale(arguments: Arguments) -> Outputs:
    a, b = (tensor(arguments, name).double() for name in "ab")
    (na, ma, sa), (nb, mb, sb) = a.unbind(1), b.unbind(1)
    # Rounding the means moves each of the larger side's numbers, in Welford's own form
    # of the update: delta * (b.mean - both.mean) * b.count.
    most = torch.where(na * nb > 0, torch.maximum(na, nb), 0.0)
    m2 = sa + sb + (ma.abs() + mb.abs()) * (mb - ma).abs() * most
    return {"out": torch.stack((na + nb, ma.abs() + mb.abs(), m2), 1)}


WELFORD_COMBINE = Exercise(
    id="welford_combine",
    title="Merge two summaries",
    kind="warm-up",
    points=10,
    language="cuda",
    entry="kernel",
    name="welford_combine",
    source="solutions/layernorm/welford.cu",
    goal="Make one summary of two: how many numbers both have seen, their mean, and "
    "the sum of their squared deviations from it.",
    requirements=(
        "`combine(a, b)` is what all numbers behind a and b together would give; no "
        "number itself is at hand.",
        "A summary with count 0 changes nothing, and two of them stay one of zeros.",
        "No squared mean is subtracted from anything.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        vector_case(500),
        Case("257 pairs, some of them empty", {"n": 257}, "zeros"),
        Case("100 pairs, the second of one number", {"n": 100}, "single"),
        Case("100 pairs, means near 1,000", {"n": 100}, "offset"),
        Case("100 pairs, each of some 100,000 numbers", {"n": 100}, "many"),
        vector_case(1),
        vector_case(0),
    ),
    # A difference, two products and two sums: each rounds by half an eps.
    tolerance=Tolerance(factor=4.0, scale=_scale),
    hints=(
        "Count first. The new mean lies between the two: how far from a.mean towards "
        "b.mean, if b has seen a third of all numbers?",
        "With delta = b.mean - a.mean and share = b.count / count the mean is a.mean + "
        "delta * share. Every number's deviation is now from another mean, and the sum "
        "of squares grows by delta * delta times something.",
        "if (both.count > 0): both.mean = a.mean + delta * share;  both.m2 = a.m2 + "
        "b.m2 + delta * delta * a.count * share;",
    ),
    onward="Merge a summary with itself: which of its three numbers do not double?",
    # A thread has a group of three numbers of its own.
    counts=moves(asked=True),
)
