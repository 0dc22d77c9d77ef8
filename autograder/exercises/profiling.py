"""Chapter 3: time a kernel, profile regions, find memory's peak, and lies in numbers.

What an answer measures is a practice GPU, whose durations and allocations the oracle
draws: the right number is known, and every known lie gives another. float32 results
are differences of times in fp64, rounded once: a factor of 1 is twice what they need.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping

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
    durations,
    flush_counted,
    made_by,
    memory_counted,
    prelude,
    without_warm_up,
)
from autograder.exercises._profiling_regions import PROFILER
from autograder.worker.practice import (
    adapt_comparison,
    adapt_memory,
    adapt_timer,
)


def _draw(generator: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high, (), generator=generator))


def _whole(arguments: Arguments, name: str) -> int:
    value = arguments[name]
    assert isinstance(value, int)
    return value


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
        n = _draw(generator, 3, 10**6)
        yield _work(f"{n:,} elements", _draw(generator, 1, 99) * n + 1, 2 * n, n, size)
        yield matmul_work(_draw(generator, 7, 5000), size)


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
        "read and written count elements; an element has element_bytes bytes.",
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
        "Every element that is read or written is moved: read + written of them, each "
        "of element_bytes bytes.",
        "return flops / ((read + written) * element_bytes)",
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
    first = _whole(arguments, "warm_up")
    last = first + _whole(arguments, "samples")
    found: list[float] = tensor(arguments, name).double()[first:last].tolist()
    return found


def _timer_reference(arguments: Arguments) -> Outputs:
    median = statistics.median(_taken(arguments, "cold"))
    return {"median_ms": torch.tensor(median, dtype=torch.float64)}


def _timer_hidden(generator: torch.Generator) -> Iterator[Case]:
    for _ in range(4):
        yield timer_case(_draw(generator, 1, 9), _draw(generator, 4, 40))


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
        "warm_up launches are discarded; then samples are timed, one launch each.",
        "Time is the device's, between two events of gpu.Event(enable_timing=True).",
        "Before each sample flush() empties the cache; it is not part of the time.",
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
        "start.record(), launch(), stop.record() only queue. When all samples are "
        "queued, gpu.synchronize() once; then start.elapsed_time(stop) is in ms.",
        "for _ in range(warm_up): launch().  Then samples times: make two events, "
        "flush(), start.record(), launch(), stop.record(), remember the pair.  Then "
        "gpu.synchronize(), and statistics.median of the elapsed times.",
    ),
    onward="On a GPU: time torch.add with gpu=torch.cuda, and compare with kw.bench.",
    structure=(_MEASURED,),
    prelude=prelude("adapt_timer"),
)


# --- peak_memory ------------------------------------------------------------------


def memory_case(allocations: int, leak: int = 0) -> Case:
    """Return a case by how many allocations the call makes."""
    name = f"{allocations} allocations" + (", a leak" if leak else "")
    return Case(name, {"allocations": allocations, "leak": leak})


def _memory_problem(case: Case, generator: torch.Generator) -> Problem:
    count = case.sizes["allocations"]
    sizes = torch.randint(1, 2**26, (count,), generator=generator)
    # Lifetimes that differ from one another, so that no two cases look alike.
    lives = torch.randperm(2 * count, generator=generator)[:count]
    arguments: dict[str, Value | None] = {
        "sizes": sizes,
        "lives": lives,
        "before": _draw(generator, 2**20, 2**28),
        "history": _draw(generator, 2**33, 2**34),
        "workspace": _draw(generator, 2**24, 2**25),
        "leak": case.sizes["leak"] * _draw(generator, 2**18, 2**22),
    }
    shapes = {name: Output((), torch.int64) for name in ("peak", "kept")}
    return Problem(arguments, shapes)


def _memory_reference(arguments: Arguments) -> Outputs:
    sizes, lives = (tensor(arguments, n).tolist() for n in ("sizes", "lives"))
    rounded = [-(-size // 512) * 512 for size in sizes]
    leak = -(-_whole(arguments, "leak") // 512) * 512
    most = 0
    for now in range(len(sizes)):
        # Allocation i is in use from step i until lives[i] steps after it.
        living = sum(
            size
            for i, (size, life) in enumerate(zip(rounded, lives, strict=True))
            if i == now or i < now < i + 1 + life
        )
        most = max(most, living)
    found: Mapping[str, int] = {"peak": most + leak, "kept": leak}
    return {name: torch.tensor(value) for name, value in found.items()}


def _memory_hidden(generator: torch.Generator) -> Iterator[Case]:
    for leak in (0, 1, 0, 1):
        yield memory_case(_draw(generator, 3, 30), leak)


def _miscounted(name: str, message: str, **mistake: bool) -> NearMiss:
    code = memory_counted(**mistake)
    return NearMiss(name, made_by(adapt_memory, ("peak", "kept"), code), message)


PEAK_MEMORY = Exercise(
    id="peak_memory",
    stem=STEM,
    title="Memory at the worst moment",
    kind="core",
    points=10,
    language="python",
    entry="function",
    name="peak_memory",
    source="solutions/profiling/memory.py",
    goal="Return what fn() needs beyond what was in use, and what it leaves in use.",
    requirements=(
        "fn() is called once before, unmeasured, and once to measure.",
        "gpu.memory_allocated() is what is in use; gpu.max_memory_allocated() the "
        "most since gpu.reset_peak_memory_stats().",
        "peak and kept are relative to what was in use just before the measured call.",
        "kept is read when nothing holds the call's result any more.",
    ),
    problem=_memory_problem,
    reference=_memory_reference,
    cases=(
        memory_case(6),
        memory_case(6, leak=1),
        memory_case(1),
        memory_case(20),
        memory_case(33, leak=1),
    ),
    hidden=_memory_hidden,
    tolerance=Tolerance(factor=0.0),
    near_misses=(
        _miscounted(
            "never reset",
            "An older and higher peak was found: call gpu.reset_peak_memory_stats() "
            "before the measured call.",
            reset=False,
        ),
        _miscounted(
            "baseline forgotten",
            "What was in use before the call is counted: subtract it from both.",
            baseline=False,
        ),
        _miscounted(
            "no warm-up",
            "The first call's workspace, which libraries make once and keep, is "
            "counted: call fn() once before you measure.",
            warm=False,
        ),
        _miscounted(
            "result held",
            "The call's own result is still held when kept is read: del it first.",
            drop=False,
        ),
        _miscounted(
            "end for peak",
            "That is what is in use after the call. What it needed in between is "
            "gpu.max_memory_allocated().",
            at_the_end=True,
        ),
    ),
    hints=(
        "The allocator counts for you. The question is when to ask, and from where to "
        "count.",
        "Order: call fn() once; read memory_allocated; reset the peak; call fn() and "
        "hold its result; read max_memory_allocated; drop the result; read "
        "memory_allocated again.",
        "result = fn(); peak = gpu.max_memory_allocated(); del result; kept = "
        "gpu.memory_allocated(); return peak - before, kept - before",
    ),
    onward="kw.peak_memory does it for a CPU too: try it on torch.softmax.",
    prelude=prelude("adapt_memory"),
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
        yield timer_case(_draw(generator, 1, 6), _draw(generator, 5, 30))


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
    goal="Make the comparison fair: how many times faster is new than old?",
    requirements=(
        "Each kernel is launched warm_up times unmeasured, then timed samples times.",
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
        "Three things are different for old and for new. Read the two loops side by "
        "side.",
        "old pays for its first launch; new reads what old has left in the cache; and "
        "the last line sums the two up in different ways.",
        "Launch both kernels warm_up times first; flush() before every sample of "
        "both; divide statistics.median by statistics.median.",
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
