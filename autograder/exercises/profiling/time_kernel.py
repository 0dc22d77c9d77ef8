"""Time one launch: by events, warmed up, its input in memory, the median."""

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
    base = 0.2 + 0.5 * float(torch.rand((), generator=generator))
    cold = durations(warm_up + samples + 3, warm_up, base, generator)
    arguments: dict[str, Value | None] = {
        "cold": cold,
        "warm": 0.6 * cold,
        "warm_up": warm_up,
        "samples": samples,
    }
    return Problem(arguments, {"median_ms": Output((), torch.float32)})


def _reference(arguments: Arguments) -> Outputs:
    median = statistics.median(taken(arguments, "cold"))
    return {"median_ms": torch.tensor(median, dtype=torch.float64)}


TIME_KERNEL = Exercise(
    id="time_kernel",
    title="Time one launch",
    kind="core",
    points=15,
    language="python",
    entry="function",
    name="time_kernel",
    source="solutions/profiling/timing.py",
    goal="Return the median time of one launch on the device, its input in memory.",
    requirements=(
        "`warm_up` launches are discarded; then `samples` are timed, one launch each.",
        "Time is the device's, between two events of `gpu.Event(enable_timing=True)`.",
        "Before each sample `flush()` empties the cache; it is not part of the time. "
        "Nothing waits after it: the GPU is still busy while you launch, so that what "
        "a launch costs is not counted.",
        "The result is the median in ms.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        timer_case(3, 7),
        timer_case(5, 20),
        timer_case(1, 1),
        timer_case(2, 8),
        timer_case(10, 31),
    ),
    tolerance=Tolerance(factor=1.0),
    hints=(
        "A launch returns at once, so the CPU's clock says nothing. Put one event "
        "into the queue before the launch and one behind it.",
        "`before.record()`, `launch()`, `after.record()` only queue. When all samples"
        " are queued, `gpu.synchronize()` once; then `before.elapsed_time(after)` is "
        "in ms.",
        "`for _ in range(warm_up): launch()`. Then `samples` times: make two "
        "events, `flush()`, `before.record()`, `launch()`, `after.record()`, remember"
        " the pair. Then `gpu.synchronize()`, and `statistics.median` of the "
        "elapsed times.",
    ),
    onward="On a GPU: time torch.add with gpu=torch.cuda, and compare with kw.bench.",
    structure=(MEASURED,),
    prelude=prelude("adapt_timer"),
)
