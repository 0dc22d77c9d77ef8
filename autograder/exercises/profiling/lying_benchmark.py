"""The detective: a comparison whose three lies all favour the new kernel."""

from __future__ import annotations

import statistics

import torch

from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Output,
    Outputs,
    Problem,
    Tolerance,
    Value,
)
from autograder.exercises.profiling.shared import (
    MEASURED,
    durations,
    prelude,
    taken,
    timer_case,
)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    warm_up, samples = case.sizes["warm_up"], case.sizes["samples"]
    count = warm_up + samples + 3
    base = 0.3 + 0.3 * float(torch.rand((), generator=generator))
    gain = 0.8 + 0.4 * float(torch.rand((), generator=generator))
    arguments: dict[str, Value | None] = {
        "old": durations(count, warm_up, base, generator),
        "new": durations(count, warm_up, base / gain, generator),
        "warm_fraction": 0.55,
        "warm_up": warm_up,
        "samples": samples,
    }
    return Problem(arguments, {"speedup": Output((), torch.float32)})


def _reference(arguments: Arguments) -> Outputs:
    old, new = (statistics.median(taken(arguments, n)) for n in ("old", "new"))
    return {"speedup": torch.tensor(old / new, dtype=torch.float64)}


LYING_BENCHMARK = Exercise(
    id="lying_benchmark",
    title="The benchmark that wanted to win",
    kind="detective",
    points=15,
    language="python",
    entry="function",
    name="compare",
    source="autograder/exercises/profiling/lying_benchmark_answer.py",
    goal="Make the comparison fair: how many times faster is `new` than `old`?",
    requirements=(
        "Each kernel is launched `warm_up` times unmeasured, then timed `samples` "
        "times.",
        "Each sample finds its input in memory, not in the cache, and the GPU still "
        "busy, so that what a launch costs is not counted.",
        "The result is the ratio of the two medians.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(timer_case(2, 9), timer_case(1, 5), timer_case(4, 30), timer_case(3, 16)),
    tolerance=Tolerance(factor=2.0),
    hints=(
        "Three things are different for `old` and for `new`. Read the two loops "
        "side by side.",
        "`old` pays for its first launch; `new` reads what `old` has left in the "
        "cache; and the last line sums the two up in different ways.",
        "Launch both kernels `warm_up` times first; `flush()` before every sample "
        "of both; divide `statistics.median` by `statistics.median`.",
    ),
    onward="Which of the lies made the largest difference? Mend one at a time.",
    structure=(MEASURED,),
    prelude=prelude("adapt_comparison"),
)
