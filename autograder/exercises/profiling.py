"""Chapter 3: time a kernel, profile regions, find memory's peak, and lies in numbers.

What an answer measures is a practice GPU, whose durations and allocations the oracle
draws: the right number is known, and every known lie gives another. float32 results
are differences of times in fp64, rounded once: a factor of 1 is twice what they need.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    NearMiss,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
    Value,
)
from autograder.exercises._profiling import (
    STEM,
    by_clock,
    by_events,
    compare_with,
    draw_int,
    durations,
    flush_counted,
    made_by,
    prelude,
    whole,
    without_warm_up,
)
from autograder.exercises._profiling_memory import PEAK_MEMORY
from autograder.exercises._profiling_regions import PROFILER
from autograder.worker.practice import (
    adapt_comparison,
    adapt_timer,
)

# What the practice GPU was told is there to be found; a real one was told nothing.
_MEASURED = Structure(
    lacks=("launch.cold_ms", "launch.warm_ms", "old.cold_ms", "new.cold_ms", "gpu.log"),
    message="The number is right, and it was read off what the practice GPU had been "
    "told. A real one was told nothing: launch, and measure.",
)


# --- arithmetic_intensity ---------------------------------------------------------


def _work(name: str, flops: int, read: int, written: int, size: int) -> Case:
    sizes = {"flops": flops, "read": read, "written": written, "element_bytes": size}
    return Case(name, sizes)


def matmul_work(n: int, element_bytes: int) -> Case:
    """Return the work of an n x n matrix product."""
    words = {2: "fp16", 4: "fp32", 8: "fp64"}[element_bytes]
    return _work(f"matmul {n}, {words}", 2 * n**3, 2 * n * n, n * n, element_bytes)


def _work_problem(case: Case, generator: torch.Generator) -> Problem:
    work = torch.tensor(list(case.sizes.values()), dtype=torch.int64)
    return Problem({"work": work}, {"intensity": Output((), torch.float64)})


def _intensity(
    arguments: Arguments, *, reads: int = 1, writes: int = 1, sized: bool = True
) -> Outputs:
    flops, read, written, element_bytes = tensor(arguments, "work").tolist()
    elements = reads * read + writes * written
    value = flops / (max(elements, 1) * (element_bytes if sized else 1))
    return {"intensity": torch.tensor(value, dtype=torch.float64)}


def _work_hidden(generator: torch.Generator) -> Iterator[Case]:
    for size in (2, 4, 8):
        n = draw_int(generator, 3, 10**6)
        yield _work(
            f"{n:,} elements", draw_int(generator, 1, 99) * n + 1, 2 * n, n, size
        )
        yield matmul_work(draw_int(generator, 7, 5000), size)


ARITHMETIC_INTENSITY = Exercise(
    id="arithmetic_intensity",
    stem=STEM,
    title="Arithmetic intensity",
    kind="warm-up",
    points=5,
    language="python",
    entry="function",
    name="arithmetic_intensity",
    source="solutions/profiling/intensity.py",
    goal="Return a kernel's floating-point operations for each byte that it moves.",
    requirements=(
        "`read` and `written` count elements; an element has `element_bytes` bytes.",
        "The result is a number, in FLOP/byte.",
    ),
    problem=_work_problem,
    reference=_intensity,
    cases=(
        _work("vector add, 2^26 elements, fp32", 2**26, 2**27, 2**26, 4),
        matmul_work(4096, 4),
        matmul_work(4096, 2),
        _work("vector add, 1,001 elements, fp16", 1001, 2002, 1001, 2),
        _work("sum of 999,983 elements, fp32", 999_982, 999_983, 1, 4),
        _work("a copy: no operation at all", 0, 999_983, 999_983, 4),
    ),
    hidden=_work_hidden,
    tolerance=Tolerance(factor=2.0),
    near_misses=(
        NearMiss(
            "elements for bytes",
            lambda arguments: _intensity(arguments, sized=False),
            "That is FLOP per element: an element has element_bytes bytes.",
        ),
        NearMiss(
            "writes forgotten",
            lambda arguments: _intensity(arguments, writes=0),
            "The result is written to memory too: those bytes are missing.",
        ),
        NearMiss(
            "reads forgotten",
            lambda arguments: _intensity(arguments, reads=0),
            "The inputs are read from memory: those bytes are missing.",
        ),
        NearMiss(
            "upside down",
            lambda arguments: {
                "intensity": 1 / _intensity(arguments)["intensity"].clamp(min=1e-300)
            },
            "That is bytes per operation: divide the other way round.",
        ),
    ),
    hints=(
        "Two numbers are needed: how many operations, which is given, and how many "
        "bytes pass between the kernel and memory.",
        "Every element that is read or written is moved: `read + written` of them, "
        "each of `element_bytes` bytes.",
        "`return flops / ((read + written) * element_bytes)`",
    ),
    onward="At which size does an fp32 matmul become bound by arithmetic on an H200?",
    prelude=prelude("adapt_number"),
)


# --- time_kernel ------------------------------------------------------------------


def timer_case(warm_up: int, samples: int) -> Case:
    """Return a case by how many launches are discarded and timed."""
    name = f"{warm_up} to warm up, {samples} sample{'s' if samples > 1 else ''}"
    return Case(name, {"warm_up": warm_up, "samples": samples})


def _timer_problem(case: Case, generator: torch.Generator) -> Problem:
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


def _taken(arguments: Arguments, name: str) -> list[float]:
    first = whole(arguments, "warm_up")
    last = first + whole(arguments, "samples")
    found: list[float] = tensor(arguments, name).double()[first:last].tolist()
    return found


def _timer_reference(arguments: Arguments) -> Outputs:
    median = statistics.median(_taken(arguments, "cold"))
    return {"median_ms": torch.tensor(median, dtype=torch.float64)}


def _timer_hidden(generator: torch.Generator) -> Iterator[Case]:
    for _ in range(4):
        yield timer_case(draw_int(generator, 1, 9), draw_int(generator, 4, 40))


def _lie(name: str, timer: object, message: str) -> NearMiss:
    assert callable(timer)
    return NearMiss(name, made_by(adapt_timer, ("median_ms",), timer), message)


TIME_KERNEL = Exercise(
    id="time_kernel",
    stem=STEM,
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
        "Before each sample `flush()` empties the cache; it is not part of the time.",
        "The result is the median in ms.",
    ),
    problem=_timer_problem,
    reference=_timer_reference,
    cases=(
        timer_case(3, 7),
        timer_case(5, 20),
        timer_case(1, 1),
        timer_case(2, 8),
        timer_case(10, 31),
    ),
    hidden=_timer_hidden,
    tolerance=Tolerance(factor=1.0),
    near_misses=(
        _lie(
            "clock, no wait",
            by_clock(wait=False),
            "That is what the launch costs the CPU. The kernel was still running when "
            "the clock was read: use two events.",
        ),
        _lie(
            "clock and wait",
            by_clock(wait=True),
            "The CPU's clock counts the launch and the waking up as well as the "
            "kernel: the time between two events is the device's alone.",
        ),
        _lie(
            "cache warm",
            by_events(statistics.median, cold=False),
            "The kernel found its input in the cache, where the launch before had "
            "left it: call flush() before every sample.",
        ),
        _lie(
            "cache warm, waiting",
            by_events(statistics.median, cold=False, wait=True),
            "The kernel found its input in the cache, where the launch before had "
            "left it: call flush() before every sample.",
        ),
        _lie(
            "no warm-up",
            without_warm_up,
            "The first launches are among the samples, and they compile and ramp the "
            "clocks up: discard warm_up launches first.",
        ),
        _lie(
            "mean",
            by_events(statistics.fmean),
            "That is the mean, and a few hitches pull it up: take the median.",
        ),
        _lie(
            "minimum",
            by_events(min),
            "That is the fastest sample, which nobody will meet again: take the "
            "median.",
        ),
        _lie(
            "flush counted",
            flush_counted,
            "flush() stands between the two events, so its time is counted: queue it "
            "before the first.",
        ),
    ),
    hints=(
        "A launch returns at once, so the CPU's clock says nothing. Put one event "
        "into the queue before the launch and one behind it.",
        "`start.record()`, `launch()`, `stop.record()` only queue. When all samples"
        " are queued, `gpu.synchronize()` once; then `start.elapsed_time(stop)` is "
        "in ms.",
        "`for _ in range(warm_up): launch()`. Then `samples` times: make two "
        "events, `flush()`, `start.record()`, `launch()`, `stop.record()`, remember"
        " the pair. Then `gpu.synchronize()`, and `statistics.median` of the "
        "elapsed times.",
    ),
    onward="On a GPU: time torch.add with gpu=torch.cuda, and compare with kw.bench.",
    structure=(_MEASURED,),
    prelude=prelude("adapt_timer"),
)


# --- lying_benchmark (detective) --------------------------------------------------


def _comparison_problem(case: Case, generator: torch.Generator) -> Problem:
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


def _comparison_reference(arguments: Arguments) -> Outputs:
    old, new = (statistics.median(_taken(arguments, n)) for n in ("old", "new"))
    return {"speedup": torch.tensor(old / new, dtype=torch.float64)}


def _comparison_hidden(generator: torch.Generator) -> Iterator[Case]:
    for _ in range(4):
        yield timer_case(draw_int(generator, 1, 6), draw_int(generator, 5, 30))


def _unfair(name: str, comparison: object, message: str) -> NearMiss:
    assert callable(comparison)
    output = made_by(adapt_comparison, ("speedup",), comparison)
    return NearMiss(name, output, message)


LYING_BENCHMARK = Exercise(
    id="lying_benchmark",
    stem=STEM,
    title="The benchmark that wanted to win",
    kind="detective",
    points=15,
    language="python",
    entry="function",
    name="compare",
    source="autograder/answers/profiling/lying_benchmark.py",
    goal="Make the comparison fair: how many times faster is `new` than `old`?",
    requirements=(
        "Each kernel is launched `warm_up` times unmeasured, then timed `samples` "
        "times.",
        "Each sample finds its input in memory, not in the cache.",
        "The result is the ratio of the two medians.",
    ),
    problem=_comparison_problem,
    reference=_comparison_reference,
    cases=(timer_case(2, 9), timer_case(1, 5), timer_case(4, 30), timer_case(3, 16)),
    hidden=_comparison_hidden,
    tolerance=Tolerance(factor=2.0),
    near_misses=(
        _unfair(
            "as it was",
            compare_with(statistics.fmean, min, warm=False, flush_new=False),
            "All of its lies are still there. Ask of each kernel: what happened just "
            "before its first sample, and what lies in the cache?",
        ),
        _unfair(
            "no warm-up",
            compare_with(statistics.median, statistics.median, warm=False),
            "The first launch of each kernel compiles, and is among the samples: "
            "launch each warm_up times first.",
        ),
        _unfair(
            "new finds the cache warm",
            compare_with(statistics.median, statistics.median, flush_new=False),
            "new still finds its input in the cache, and old never does: flush before "
            "every sample of either.",
        ),
        _unfair(
            "both find the cache warm",
            compare_with(
                statistics.median, statistics.median, flush_old=False, flush_new=False
            ),
            "Both find their input in the cache now: equal, but not what was asked. "
            "Flush before every sample.",
        ),
        _unfair(
            "mean against minimum",
            compare_with(statistics.fmean, min),
            "old is judged by its mean and new by its luckiest run: take the median "
            "of both.",
        ),
        _unfair(
            "means",
            compare_with(statistics.fmean, statistics.fmean),
            "Both are means, and single hitches move them: take the medians.",
        ),
        _unfair(
            "minima",
            compare_with(min, min),
            "Both are minima: take the medians, the time that a user meets.",
        ),
        _unfair(
            "upside down",
            lambda *given: 1
            / compare_with(statistics.median, statistics.median)(*given),
            "That is how many times slower new is: the ratio is upside down.",
        ),
    ),
    hints=(
        "Three things are different for `old` and for `new`. Read the two loops "
        "side by side.",
        "`old` pays for its first launch; `new` reads what `old` has left in the "
        "cache; and the last line sums the two up in different ways.",
        "Launch both kernels `warm_up` times first; `flush()` before every sample "
        "of both; divide `statistics.median` by `statistics.median`.",
    ),
    onward="Which of the lies made the largest difference? Mend one at a time.",
    structure=(_MEASURED,),
    prelude=prelude("adapt_comparison"),
)

EXERCISES = (
    ARITHMETIC_INTENSITY,
    TIME_KERNEL,
    PROFILER,
    PEAK_MEMORY,
    LYING_BENCHMARK,
)
