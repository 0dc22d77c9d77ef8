"""Chapter 3 on a GPU: how far careless timers are off, ceilings, and the tools' cost.

    python -m benchmarks.profiling                 measure and store
    python -m benchmarks.profiling --check         and hold against the floors
    python -m benchmarks.profiling --only-correct  no timing; also without a GPU

What is timed in wrong ways is ``torch.add`` on 2^21 floats, 25 MB in all, which an
H200's L2 holds, so that a cache can lie too; and on 2^26, 805 MB, which it cannot.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import torch

import kernelwright as kw
from benchmarks import _command
from benchmarks._candidates import Candidate, Row
from kernelwright.measure import copy_bandwidth, matmul_rate
from solutions import profiling as family
from solutions.vector_add import vector_add

SMALL = 2**21
LARGE = 2**26
SIDE = 4096

# Lowest figure that is no regression, by device: the solution's timer must agree
# with kw.bench, and torch's matmul must stay below its own ceiling.
FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {"time_kernel_large": 0.9, "add_large": 0.9},
}


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    return _command.run("profiling", options, check_values, measured, FLOORS)


def check_values(device: str) -> None:
    """Hold what is timed against torch."""
    x, y = torch.randn(2, 1009, device=device)
    assert torch.equal(vector_add(x, y), x + y)
    print(f"right on {device}: vector_add")


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time and measure all that the chapter shows."""
    torch.backends.cuda.matmul.allow_tf32 = False
    rows = [*timers(), *roofline_points(), *memory_rows()]
    copy, bf16 = copy_bandwidth(), matmul_rate()
    fp32 = matmul_rate(dtype=torch.float32, size=SIDE)
    facts = {
        "copy_gbps": copy.gbps,
        "matmul_bf16_tflops": bf16.tflops,
        "matmul_fp32_tflops": fp32.tflops,
    }
    yield rows, {**facts, **profiler_cost()}


def timers() -> list[Row]:
    """Time a small and a large addition in careless ways and in careful ones."""
    torch.cuda.synchronize()
    x = torch.randn(SMALL, device="cuda")
    out = torch.empty_like(x)
    first = _clock(lambda: torch.add(x, x, out=out), wait=True)
    rows = []
    for n, suffix in ((SMALL, ""), (LARGE, "_large")):
        found = _timed_in_every_way(n)
        if not suffix:
            found = {"first_call": ("clock and wait, first call", first)} | found
        truth = found["bench"][1]
        for name, (label, ms) in found.items():
            rows.append(
                {
                    "name": name + suffix,
                    "label": label,
                    "n": n,
                    "median_ms": ms,
                    "median_us": ms * 1e3,
                    "gbps": 12 * n / ms / 1e6,
                    "ratio": min(truth / ms, ms / truth),
                    "says": ms / truth,
                }
            )
            print(f"{n:>11,} {label:<40} {ms * 1e3:10.2f} us {ms / truth:9.2f}")
    return rows


def _timed_in_every_way(n: int) -> dict[str, tuple[str, float]]:
    """Return what each timer says of ``torch.add`` on n floats, in ms."""
    x, y = (torch.randn(n, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    waste = torch.empty(2**28, dtype=torch.uint8, device="cuda")

    def add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
        torch.add(x, y, out=out)

    def launch() -> None:
        torch.add(x, y, out=out)

    def overwrite() -> None:
        waste.fill_(1)

    def read_over() -> None:
        waste.view(torch.float32).sum()

    for _ in range(20):
        launch()
        overwrite()
        read_over()
    torch.cuda.synchronize()
    repeat = range(51)

    def median(sample: Callable[[], float]) -> float:
        return statistics.median(sample() for _ in repeat)

    def timed(flush: Callable[[], None]) -> float:
        return float(family.time_kernel(torch.cuda, launch, flush, 20, 51))

    return {
        "no_wait": ("clock, no wait", median(lambda: _clock(launch, wait=False))),
        "wait": ("clock and wait", median(lambda: _clock(launch, wait=True))),
        "idle_events": (
            "two events on an idle GPU",
            median(lambda: _event_ms(launch)),
        ),
        "queued_events": ("100 launches between two events", _queued_ms(launch)),
        "time_kernel": ("time_kernel, flushed by writing", timed(overwrite)),
        "time_kernel_read": ("time_kernel, flushed by reading", timed(read_over)),
        "bench": (
            "kw.bench: other inputs each time",
            kw.bench(add, x, y, out).median_ms,
        ),
    }


def _clock(launch: Callable[[], None], *, wait: bool) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    launch()
    if wait:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def _event_ms(launch: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    launch()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop))


def _queued_ms(launch: Callable[[], None]) -> float:
    torch.cuda._sleep(20_000_000)
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(100):
        launch()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) / 100


def kernels() -> Iterator[Candidate]:
    """Name kernels on both sides of the ridge."""
    x, y = (torch.randn(LARGE, device="cuda") for _ in range(2))
    a, b = (torch.randn(SIDE, SIDE, device="cuda") for _ in range(2))
    z = torch.randn(16384, 8192, device="cuda").bfloat16()
    yield Candidate(
        "add_large", "vector add, fp32", vector_add, (x, y), 12 * LARGE, flops=LARGE
    )
    yield Candidate(
        "softmax", "softmax, bf16", lambda z: torch.softmax(z, -1), (z,),
        4 * z.numel(), flops=5 * z.numel(),
    )  # fmt: skip
    for name, label, left, right in (
        ("matmul_fp32", "matmul 4096, fp32", a, b),
        ("matmul_bf16", "matmul 4096, bf16", a.bfloat16(), b.bfloat16()),
    ):
        moved, flops = 3 * left.nbytes, 2 * SIDE**3
        yield Candidate(name, label, torch.matmul, (left, right), moved, flops=flops)


def roofline_points() -> list[Row]:
    """Time kernels on both sides of the ridge."""
    rows = []
    copy = copy_bandwidth().gbps or 0.0
    for c in kernels():
        moved, flops = c.bytes_moved, int(c.flops)
        timing = kw.bench(
            c.run, *c.arguments, flops=flops, bytes_moved=moved, label=c.label,
            device="cuda",
        )  # fmt: skip
        print(timing)
        rows.append(
            {
                "name": c.name,
                "label": c.label,
                "flops": flops,
                "bytes": moved,
                "intensity": flops / moved,
                "median_ms": timing.median_ms,
                "low_ms": timing.low_ms,
                "high_ms": timing.high_ms,
                "tflops": timing.tflops,
                "gbps": timing.gbps,
                "ratio": (timing.gbps or 0.0) / copy,
            }
        )
    return rows


def memory_rows() -> list[Row]:
    """Measure the peak of one formula written in two ways, 256 MiB an array."""
    x = torch.randn(LARGE, device="cuda")

    def eager() -> torch.Tensor:
        return torch.relu(x * 2 + 1)

    def in_place() -> torch.Tensor:
        return (x * 2).add_(1).relu_()

    def result_kept() -> torch.Tensor:
        kept.append(x * 2)
        return kept[-1]

    kept: list[torch.Tensor] = []
    rows = []
    for fn, label in (
        (eager, "relu(x * 2 + 1)"),
        (in_place, "the same, in place after x * 2"),
        (result_kept, "x * 2, appended to a list"),
    ):
        peak, left = family.peak_memory(torch.cuda, fn)
        rows.append(
            {
                "name": fn.__name__,
                "label": label,
                "peak_mib": peak / 2**20,
                "kept_mib": left / 2**20,
                "workbench_peak_mib": kw.peak_memory(fn, device="cuda").peak_bytes
                / 2**20,
            }
        )
        print(rows[-1])
    return rows


def profiler_cost() -> dict[str, float]:
    """Measure what a region costs the CPU, and how well totals agree with events."""
    found = {}
    for memory, name in ((False, "region_us"), (True, "region_with_memory_us")):
        prof = kw.Profiler("cuda", memory=memory)
        _empty_regions(prof, 100)
        start = time.perf_counter()
        _empty_regions(prof, 1000)
        found[name] = (time.perf_counter() - start) * 1e3
    a = torch.randn(SIDE, SIDE, device="cuda").bfloat16()
    alone = kw.bench(torch.matmul, a, a).median_ms
    for _ in range(2):  # the first time warms up
        prof = kw.Profiler("cuda")
        torch.cuda._sleep(20_000_000)
        for _ in range(20):
            with prof.record("step"):
                with prof.record("matmul"):
                    b = a @ a
                with prof.record("relu"):
                    torch.relu(b)
        summary = prof.summary()
    print(summary)
    inside = summary["step/matmul"].total_ms / 20
    found |= {"matmul_in_region_ms": inside, "matmul_bench_ms": alone}
    print(found)
    return found


def _empty_regions(prof: kw.Profiler, count: int) -> None:
    for _ in range(count):
        with prof.record("empty"):
            pass


if __name__ == "__main__":
    sys.exit(main())
