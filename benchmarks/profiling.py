"""Chapter 3 on a GPU: how far careless timers are off, ceilings, and the tools' cost.

    python -m benchmarks.profiling           measure and store
    python -m benchmarks.profiling --check   and hold against the floors

The kernel that is timed in wrong ways adds two vectors of 2^21 floats: 25 MB, which
an H200's L2 holds, so that a cache can lie too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import kernelwright as kw
from benchmarks._store import RESULTS, below_floor, slug, store
from kernelwright.measure import copy_bandwidth, matmul_rate
from solutions import profiling as family
from solutions.vector_add import vector_add

SMALL = 2**21
LARGE = 2**26
SIDE = 4096

# Lowest figure that is no regression, by device: the solution's timer must agree
# with kw.bench, and torch's matmul must stay below its own ceiling.
FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {"time_kernel": 0.9, "add_large": 0.9},
}


def main() -> int:
    """Measure and store; return 1 where a floor is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("not measured: no GPU")
        return 0
    torch.backends.cuda.matmul.allow_tf32 = False
    rows = [*timers(), *roofline_points(), *memory_rows()]
    copy, bf16 = copy_bandwidth(), matmul_rate()
    fp32 = matmul_rate(dtype=torch.float32, size=SIDE)
    path = store(
        "profiling",
        rows,
        options.out,
        copy_gbps=copy.gbps,
        matmul_bf16_tflops=bf16.tflops,
        matmul_fp32_tflops=fp32.tflops,
        **profiler_cost(),
    )
    print(f"stored {path}")
    name = slug(torch.cuda.get_device_name())
    broken = below_floor(rows, FLOORS.get(name, {})) if options.check else []
    print("\n".join(broken))
    return 1 if broken else 0


def timers() -> list[dict[str, Any]]:
    """Time one small kernel in six ways; ``ratio`` is truth over what it says."""
    x, y = (torch.randn(SMALL, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    waste = torch.empty(2**28, dtype=torch.uint8, device="cuda")

    def launch() -> None:
        vector_add(x, y, out=out)

    def flush() -> None:
        waste.fill_(1)

    torch.cuda.synchronize()
    first = _clock(launch, wait=True)
    for _ in range(20):
        launch()
    torch.cuda.synchronize()
    repeat = range(51)
    truth = kw.bench(vector_add, x, y, bytes_moved=12 * SMALL).median_ms
    warm = statistics.median(_event_ms(launch) for _ in repeat)
    cold = family.time_kernel(torch.cuda, launch, flush, 20, 51)
    found = {
        "first_call": ("clock and wait, first call ever", first),
        "no_wait": (
            "clock, no wait",
            statistics.median(_clock(launch, wait=False) for _ in repeat),
        ),
        "wait": (
            "clock and wait",
            statistics.median(_clock(launch, wait=True) for _ in repeat),
        ),
        "warm_events": ("events, inputs in the L2, idle device", warm),
        "queued_events": ("events, inputs in the L2, full queue", _queued_ms(launch)),
        "time_kernel": ("events, flushed: time_kernel", cold),
        "bench": ("kw.bench: rotated inputs", truth),
    }
    rows = []
    for name, (label, ms) in found.items():
        rows.append(
            {
                "name": name,
                "label": label,
                "n": SMALL,
                "median_ms": ms,
                "median_us": ms * 1e3,
                "gbps": 12 * SMALL / ms / 1e6,
                "ratio": min(truth / ms, ms / truth),
                "says": ms / truth,
            }
        )
        print(f"{label:<40} {ms * 1e3:9.2f} us  {ms / truth:8.2f} of kw.bench")
    return rows


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


def roofline_points() -> list[dict[str, Any]]:
    """Time kernels on both sides of the ridge."""
    n = LARGE
    x, y = (torch.randn(n, device="cuda") for _ in range(2))
    a, b = (torch.randn(SIDE, SIDE, device="cuda") for _ in range(2))
    rows_, columns = 16384, 8192
    z = torch.randn(rows_, columns, device="cuda").bfloat16()
    square = SIDE**2
    todo: list[tuple[str, str, Callable[..., object], tuple[Any, ...], int, int]] = [
        ("add_large", "vector add, fp32", vector_add, (x, y), n, 12 * n),
        (
            "softmax",
            "softmax, bf16",
            lambda z: torch.softmax(z, -1),
            (z,),
            5 * z.numel(),
            4 * z.numel(),
        ),
        (
            "matmul_fp32",
            "matmul 4096, fp32",
            torch.matmul,
            (a, b),
            2 * SIDE**3,
            12 * square,
        ),
        (
            "matmul_bf16",
            "matmul 4096, bf16",
            torch.matmul,
            (a.bfloat16(), b.bfloat16()),
            2 * SIDE**3,
            6 * square,
        ),
    ]
    rows = []
    copy = copy_bandwidth().gbps or 0.0
    for name, label, fn, arguments, flops, moved in todo:
        timing = kw.bench(
            fn, *arguments, flops=flops, bytes_moved=moved, label=label, device="cuda"
        )
        print(timing)
        rows.append(
            {
                "name": name,
                "label": label,
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


def memory_rows() -> list[dict[str, Any]]:
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
    prof = kw.Profiler("cuda", memory=False)
    with prof.record("warm-up"):
        pass
    start = time.perf_counter()
    for _ in range(1000):
        with prof.record("empty"):
            pass
    region_us = (time.perf_counter() - start) * 1e3
    a = torch.randn(SIDE, SIDE, device="cuda").bfloat16()
    alone = kw.bench(torch.matmul, a, a).median_ms
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
    print(f"region {region_us:.2f} us; matmul {inside:.4f} ms, kw.bench {alone:.4f}")
    return {
        "region_us": region_us,
        "matmul_in_region_ms": inside,
        "matmul_bench_ms": alone,
    }


if __name__ == "__main__":
    sys.exit(main())
