"""Chapter 5: merging statistics, rows in registers, RMSNorm, gradients, cancelling."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from autograder.drawing import tensor, vector_case
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    NearMiss,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.exercises._layernorm import STEM, THREADS
from autograder.exercises._layernorm_backward import LAYER_NORM_BACKWARD
from autograder.exercises._layernorm_far import VARIANCE_CANCELS
from autograder.exercises._layernorm_halves import RMS_NORM
from autograder.exercises._layernorm_rows import LAYER_NORM, LAYER_NORM_RELU
from autograder.totals import moves

# --- welford_combine ----------------------------------------------------------------


def _summaries_problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]

    def summaries() -> torch.Tensor:
        counts = torch.randint(
            1, 1000, (n,), generator=generator, device=generator.device
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


def _merged(
    change: Callable[..., tuple[torch.Tensor, torch.Tensor]] | None = None,
) -> Callable[[Arguments], Outputs]:
    """Return the merge, or the mistake that takes mean and m2 from ``change``."""

    def output(arguments: Arguments) -> Outputs:
        a, b = (tensor(arguments, name).double() for name in "ab")
        (na, ma, sa), (nb, mb, sb) = a.unbind(1), b.unbind(1)
        count = na + nb
        delta, share = mb - ma, nb / count.clamp(min=1.0)
        mean, m2 = ma + delta * share, sa + sb + delta * delta * na * share
        if change is not None:
            mean, m2 = change(na, ma, sa, nb, mb, sb, mean, m2)
        return {"out": torch.stack((count, mean, m2), 1)}

    return output


def _count_of_a(arguments: Arguments) -> Outputs:
    out = _merged()(arguments)["out"].clone()
    out[:, 0] = tensor(arguments, "a")[:, 0]
    return {"out": out}


def _summary_scale(arguments: Arguments) -> Outputs:
    a, b = (tensor(arguments, name).double() for name in "ab")
    (na, ma, sa), (nb, mb, sb) = a.unbind(1), b.unbind(1)
    # Rounding the means moves each of the larger side's numbers, in Welford's own form
    # of the update: delta * (b.mean - both.mean) * b.count.
    most = torch.where(na * nb > 0, torch.maximum(na, nb), 0.0)
    m2 = sa + sb + (ma.abs() + mb.abs()) * (mb - ma).abs() * most
    return {"out": torch.stack((na + nb, ma.abs() + mb.abs(), m2), 1)}


def _hidden_summaries(generator: torch.Generator) -> Iterator[Case]:
    yield Case("300 pairs, hidden", {"n": 300})
    yield Case("77 pairs, some empty, hidden", {"n": 77}, "zeros")


WELFORD_COMBINE = Exercise(
    id="welford_combine",
    stem=STEM,
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
    problem=_summaries_problem,
    reference=_merged(),
    cases=(
        vector_case(500),
        Case("257 pairs, some of them empty", {"n": 257}, "zeros"),
        Case("100 pairs, the second of one number", {"n": 100}, "single"),
        Case("100 pairs, means near 1,000", {"n": 100}, "offset"),
        vector_case(1),
        vector_case(0),
    ),
    hidden=_hidden_summaries,
    # A difference, two products and two sums: each rounds by half an eps.
    tolerance=Tolerance(factor=4.0, scale=_summary_scale),
    near_misses=(
        NearMiss(
            "means averaged",
            _merged(lambda na, ma, sa, nb, mb, sb, mean, m2: ((ma + mb) / 2, m2)),
            "The mean is the plain average of the two means. The side that has seen "
            "more numbers counts for more: move from a.mean towards b.mean by b's "
            "share of the count.",
        ),
        NearMiss(
            "nothing between",
            _merged(lambda na, ma, sa, nb, mb, sb, mean, m2: (mean, sa + sb)),
            "m2 is only a.m2 + b.m2. Each of these is about its own mean; between the "
            "two means lies delta * delta * a.count * b.count / count more.",
        ),
        NearMiss(
            "weights swapped",
            _merged(
                lambda na, ma, sa, nb, mb, sb, mean, m2: (
                    mb + (ma - mb) * nb / (na + nb).clamp(min=1.0),
                    m2,
                )
            ),
            "The mean is drawn towards the side that has seen less: the shares of a "
            "and b are swapped.",
        ),
        NearMiss(
            "empty divided",
            _merged(
                lambda na, ma, sa, nb, mb, sb, mean, m2: (
                    torch.where(na + nb > 0, mean, torch.nan),
                    torch.where(na + nb > 0, m2, torch.nan),
                )
            ),
            "Two empty summaries have made NaN, which is 0 / 0. Divide by the count "
            "only where it is more than 0.",
        ),
        NearMiss(
            "single number lost",
            _merged(
                lambda na, ma, sa, nb, mb, sb, mean, m2: (
                    torch.where(na + nb > 1, mean, ma),
                    torch.where(na + nb > 1, m2, sa),
                )
            ),
            "Where b is one number and a is empty, that number is lost: the guard is "
            "both.count > 0, and 1 is more than 0.",
        ),
        NearMiss(
            "b's squares forgotten",
            _merged(lambda na, ma, sa, nb, mb, sb, mean, m2: (mean, m2 - sb)),
            "b.m2 is missing from m2.",
        ),
        NearMiss(
            "share alone",
            _merged(
                lambda na, ma, sa, nb, mb, sb, mean, m2: (
                    mean,
                    sa + sb + (mb - ma) ** 2 * nb / (na + nb).clamp(min=1.0),
                )
            ),
            "What lies between the means enters m2 with b.count / count: a.count * "
            "b.count / count is the factor.",
        ),
        NearMiss(
            "both counts",
            _merged(
                lambda na, ma, sa, nb, mb, sb, mean, m2: (
                    mean,
                    sa + sb + (mb - ma) ** 2 * na * nb,
                )
            ),
            "What lies between the means enters m2 with a.count * b.count: divide that "
            "by the common count.",
        ),
        NearMiss(
            "delta anew",
            _merged(
                lambda na, ma, sa, nb, mb, sb, mean, m2: (
                    mean,
                    sa + sb + (mb - mean) ** 2 * na * nb / (na + nb).clamp(min=1.0),
                )
            ),
            "m2 is made with b's distance from the new mean: delta is that between the "
            "two old ones, b.mean - a.mean.",
        ),
        NearMiss(
            "variance for m2",
            _merged(
                lambda na, ma, sa, nb, mb, sb, mean, m2: (
                    mean,
                    m2 / (na + nb).clamp(min=1.0),
                )
            ),
            "m2 is divided by the count, and so is a variance: it stays a sum.",
        ),
        NearMiss(
            "whole count",
            _merged(
                lambda na, ma, sa, nb, mb, sb, mean, m2: (
                    mean,
                    sa + sb + (mb - ma) ** 2 * nb,
                )
            ),
            "What lies between the means enters m2 with b.count alone; it enters with "
            "a.count * b.count / count.",
        ),
        NearMiss(
            "delta the other way",
            _merged(
                lambda na, ma, sa, nb, mb, sb, mean, m2: (2 * ma - mean, m2),
            ),
            "The mean moves away from b: delta is b.mean - a.mean.",
        ),
        NearMiss(
            "delta not squared",
            _merged(
                lambda na, ma, sa, nb, mb, sb, mean, m2: (
                    mean,
                    sa + sb + (mb - ma) * na * nb / (na + nb).clamp(min=1.0),
                )
            ),
            "What lies between the means enters m2 as delta; it enters as "
            "delta * delta.",
        ),
        NearMiss(
            "one side empty",
            _merged(
                lambda na, ma, sa, nb, mb, sb, mean, m2: (
                    torch.where(na * nb > 0, mean, ma),
                    torch.where(na * nb > 0, m2, sa),
                )
            ),
            "Where a is empty, b's mean and m2 are lost: the guard is for two empty "
            "sides, both.count > 0, and the formula is right for one.",
        ),
        NearMiss(
            "count of a",
            _count_of_a,
            "The count is that of a alone: both.count = a.count + b.count.",
        ),
        NearMiss(
            "a as it is",
            lambda arguments: {"out": tensor(arguments, "a").double()},
            "The result is a, as it came: count, mean and m2 must take b in.",
        ),
    ),
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
    counts=(
        # A thread has a group of three numbers of its own.
        moves(asked=True)
    ),
)

EXERCISES = (
    WELFORD_COMBINE,
    LAYER_NORM,
    LAYER_NORM_RELU,
    RMS_NORM,
    LAYER_NORM_BACKWARD,
    VARIANCE_CANCELS,
)
