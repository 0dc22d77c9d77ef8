"""Chapter 8: the online rule, a block a row, a program a row, a row in pieces."""

from __future__ import annotations

import torch

from autograder.exercise import (
    Count,
    Exercise,
    NearMiss,
    Structure,
)
from autograder.exercises._softmax import (
    STEM,
    THREADS,
    TOLERANCE,
    block_problem,
    cut,
    from_zero,
    hidden_rows,
    highest,
    joined,
    maxima_and_totals,
    of_rows,
    rows_case,
    shared_misses,
    softmax,
    timed,
    weights,
)
from autograder.exercises._softmax_halves import FP16_OVERFLOW
from autograder.exercises._softmax_merge import MERGES
from autograder.exercises._softmax_triton import SOFTMAX_LONG_ROWS, SOFTMAX_TRITON
from autograder.exercises._softmax_update import ONLINE_UPDATE

# --- softmax_online ---------------------------------------------------------------


def _by_thread(x: torch.Tensor) -> torch.Tensor:
    """Return (rows, columns of a thread, 256), -inf past the end."""
    return cut(x, THREADS)


def _totals(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each thread's maximum and total, (rows, 1, 256)."""
    return maxima_and_totals(_by_thread(x), 1)


def _threads_alone(x: torch.Tensor) -> torch.Tensor:
    most, total = _totals(x)
    return joined(x, torch.exp(_by_thread(x) - most) / total)


def _warps_alone(x: torch.Tensor) -> torch.Tensor:
    parts = _by_thread(x).view(len(x), -1, 8, 32)
    most = parts.amax((1, 3), keepdim=True)
    e = torch.exp(parts - most)
    return joined(x, e / e.sum((1, 3), keepdim=True))


def _first_warp(x: torch.Tensor) -> torch.Tensor:
    parts = _by_thread(x)[:, :, :32]
    most = parts.amax((1, 2)).unsqueeze(1)
    total = torch.exp(parts - most[:, :, None]).sum((1, 2)).unsqueeze(1)
    return torch.exp(x - most) / total


def _thread_0_alone(x: torch.Tensor) -> torch.Tensor:
    column = torch.arange(x.shape[1])
    return torch.where(column % THREADS == 0, torch.softmax(x, -1), _warps_alone(x))


def _first_warp_twice(x: torch.Tensor) -> torch.Tensor:
    e = _by_thread(weights(x)).masked_fill(_by_thread(x) == -torch.inf, 0.0)
    twice = e.sum((1, 2)) + e[:, :, :32].sum((1, 2))
    return weights(x) / twice[:, None]


def _own_warp_twice(x: torch.Tensor) -> torch.Tensor:
    e = _by_thread(weights(x)).masked_fill(_by_thread(x) == -torch.inf, 0.0)
    each = e.view(len(x), -1, 8, 32).sum((1, 3), keepdim=True)
    twice = (each + each.sum(2, keepdim=True)).expand(-1, e.shape[1], 8, 32)
    return weights(x) / joined(x, twice)


def _weighed_twice(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x.float()).double()
    return weights(x) / (e * weights(x)).sum(1, keepdim=True)


def _written_without_maximum(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x.float()).double() / weights(x).sum(1, keepdim=True)


def _totals_as_they_are(x: torch.Tensor) -> torch.Tensor:
    _, total = _totals(x)
    return weights(x) / total.sum(2)


def _counted(x: torch.Tensor) -> torch.Tensor:
    return weights(x) / (x != -torch.inf).sum(1, keepdim=True)


def _first_columns(x: torch.Tensor) -> torch.Tensor:
    most = highest(x[:, :THREADS])
    return torch.exp(x - most) / torch.exp(x[:, :THREADS] - most).sum(1, keepdim=True)


def _nan_lost(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax of the other numbers in a row that holds a NaN."""
    return torch.softmax(x.masked_fill(x.isnan(), -torch.inf), -1) + 0.0 * x.where(
        x.isnan(), 0.0
    )


def _upside_down(x: torch.Tensor) -> torch.Tensor:
    growth = torch.exp(highest(x) - x)
    growth = growth.masked_fill(x == -torch.inf, 0.0).sum(1, keepdim=True)
    return weights(x) / growth.float().double()  # where a float ends it is infinite


def _unguarded(x: torch.Tensor) -> torch.Tensor:
    """Return NaN in the rows where two empty pairs met."""
    met = (x[:, :THREADS] == -torch.inf).any(1, keepdim=True)
    if x.shape[1] < THREADS - 16:  # two lanes, 16 apart, that have nothing
        met = torch.ones_like(met)
    return torch.softmax(x, -1).masked_fill(met, torch.nan)


SOFTMAX_ONLINE = Exercise(
    id="softmax_online",
    stem=STEM,
    title="Softmax in two sweeps",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="softmax_online",
    source="solutions/softmax/online.cu",
    goal="Make the softmax of each row with one sweep for the maximum and the sum "
    "together, and one to write.",
    requirements=(
        "A block of 256 threads a row, any number of columns; each thread keeps a "
        "maximum and a total.",
        "`merge` puts two pairs together by the online rule; a pair of -INFINITY and 0 "
        "has seen nothing.",
        "x is read twice and out written once, coalesced; at most two barriers.",
        "A row that is all -inf gives NaN, as in torch, and so does one with a NaN or "
        "+inf.",
    ),
    problem=block_problem,
    reference=softmax,
    cases=(
        rows_case(4, 1024),
        rows_case(3, 1000, "growing"),
        rows_case(3, 257, "far"),
        rows_case(5, 33),
        rows_case(3, 255, "masked"),
        rows_case(4, 31, "large"),
        rows_case(9, 1),
        rows_case(2, 0),
        rows_case(4, 300, "special"),
        rows_case(3, 300, "deep"),
        rows_case(4, 200, "filled"),
    ),
    hidden=hidden_rows(3000),
    tolerance=TOLERANCE,
    near_misses=(
        NearMiss(
            "pairs added as they are",
            of_rows(_counted),
            "Every element counts as 1 in the total: merge adds the totals as they "
            "are. Each must be multiplied by exp(its maximum - the new one) first.",
        ),
        NearMiss(
            "threads' totals added as they are",
            of_rows(_totals_as_they_are),
            "The threads' totals are added as they are, each relative to its own "
            "maximum: bring them to the row's maximum first.",
        ),
        NearMiss(
            "factor upside down",
            of_rows(_upside_down),
            "The factor is upside down: a total shrinks when the maximum grows, "
            "expf(own maximum - new maximum).",
        ),
        NearMiss(
            "threads alone",
            of_rows(_threads_alone),
            "Each thread divides by its own total: merge the pairs of all 256 threads "
            "before you write.",
        ),
        NearMiss(
            "warps alone",
            of_rows(_warps_alone),
            "Each warp divides by its own total: the eight warps leave their pairs in "
            "shared memory, and all eight must be merged.",
        ),
        NearMiss(
            "first warp for all",
            of_rows(_first_warp),
            "All is divided by the first warp's total: merge room[1] to room[7] too.",
        ),
        NearMiss(
            "thread 0 alone",
            of_rows(_thread_0_alone),
            "Thread 0 alone has merged the warps' pairs: the others divide by their "
            "own warp's total. Let every thread merge all eight.",
        ),
        NearMiss(
            "first warp twice",
            of_rows(_first_warp_twice),
            "The first warp is in the total twice: begin with room[0] and merge "
            "room[1] to room[7].",
        ),
        NearMiss(
            "own warp twice",
            of_rows(_own_warp_twice),
            "Each thread counts its own warp twice: it begins with its warp's pair and "
            "merges all eight of them. Begin with room[0] and merge the other seven.",
        ),
        *MERGES,
        NearMiss(
            "first columns alone",
            of_rows(_first_columns),
            "Only the first 256 columns are in the total: each thread takes column t, "
            "and goes on in steps of 256.",
        ),
        NearMiss(
            "NaN lost",
            of_rows(_nan_lost),
            "A NaN is lost on the way. fmaxf passes over it, so it lives in the total "
            "alone, beside a maximum that may still be -INFINITY. Where one maximum "
            "is -INFINITY, return the *other* pair before you compare the two.",
        ),
        NearMiss(
            "weighed twice",
            of_rows(_weighed_twice),
            "A single number x is the pair (x, 1): its total is exp(x - x), and not "
            "exp(x).",
        ),
        NearMiss(
            "written without maximum",
            of_rows(_written_without_maximum),
            "The total is relative to the maximum, and what you write is not: "
            "exp(x - maximum) / total.",
        ),
        NearMiss(
            "maximum from zero",
            of_rows(from_zero),
            "The maximum begins at a number: where all of a row is far below it, every "
            "exp is 0 and so is the total. Begin at -INFINITY, which is below all.",
        ),
        NearMiss(
            "nothing met nothing",
            of_rows(_unguarded),
            "Where two pairs that have seen nothing meet, -inf - -inf is NaN, and it "
            "spreads: if one maximum is -INFINITY, return the other pair.",
        ),
        *(NearMiss(*miss) for miss in shared_misses()),
    ),
    hints=(
        "One value x is a pair as well: its maximum is x, and its total exp(x - x) = "
        "1. So one rule serves for values, threads, lanes and warps.",
        "merge: the new maximum is the larger; each total times exp(its own maximum - "
        "the new one), added. Then a thread over its columns, five shuffles of both "
        "numbers, and the eight pairs in room after a barrier.",
        "both.total = a.total * expf(a.maximum - both.maximum) + b.total * "
        "expf(b.maximum - both.maximum), after returning b if a has seen nothing and "
        "a if b has not. mine = merge(mine, {x[c], 1.0f}) for each column.",
    ),
    onward="Two exponentials for each element, where three sweeps need one. When is "
    "the third sweep cheaper?",
    counts=(
        # 4 x 1,024 floats, read twice and written once.
        Count("bytes", "global", "load", at_most=1.02 * 32_768, ideal=32_768),
        Count("bytes", "global", "store", at_most=1.02 * 16_384, ideal=16_384),
        Count("sectors_per_request", "global", "load", at_most=4.5, ideal=4.0),
        Count("sectors_per_request", "global", "store", at_most=4.5, ideal=4.0),
        Count("barriers", "shared", "store", at_most=2, ideal=1),
    ),
    structure=(
        Structure(
            holds=("SHFL",),
            lacks=("ATOMS", "ATOMG", "RED", "DADD", "DMUL", "DFMA"),
            message="The values are right. Wanted were shuffles within the warps "
            "(SHFL), no atomics and no double.",
        ),
    ),
    speed=timed(16384, 8192, {"bronze": 0.25, "silver": 0.33, "gold": 0.40}),
)

EXERCISES = (
    ONLINE_UPDATE,
    SOFTMAX_ONLINE,
    SOFTMAX_TRITON,
    SOFTMAX_LONG_ROWS,
    FP16_OVERFLOW,
)
