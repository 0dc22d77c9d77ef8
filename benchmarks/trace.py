"""Measure the trace: a tiled matmul, four blocks sampled and all.

    python -m benchmarks.trace           measure and store
    python -m benchmarks.trace --check   and hold against the limits

It writes ``results/trace-cpu.json``.
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import sys
from collections.abc import Callable, Mapping
from datetime import date
from importlib.metadata import version
from typing import Any

import torch

import kernelwright as kw
from benchmarks import _cpu
from kernelwright.emulator.library import worker_count
from kernelwright.emulator.toolchain import find_compiler

SIDE = 512
LIMITS_S = {"four_blocks": 0.1, "all_blocks": 10.0}


def spread_of(run: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Time a call: its median, its best and its worst, in seconds."""
    samples = _cpu.seconds_of(run, repeats)
    return {
        "median_s": round(statistics.median(samples), 4),
        "least_s": round(min(samples), 4),
        "most_s": round(max(samples), 4),
        "repeats": repeats,
    }


def peak_mb() -> float:
    """Return the most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    """Measure, print and store; with ``--check``, judge."""
    return _cpu.run("trace-cpu", __doc__, measured, misses)


def misses(record: Mapping[str, Any]) -> list[str]:
    """Return which figures are on the wrong side of what the design asks."""
    return [
        f"{name}: {record['results'][name]['median_s']} s, limit {limit} s"
        for name, limit in LIMITS_S.items()
        if record["results"][name]["median_s"] > limit
    ]


def measured() -> dict[str, Any]:
    """Trace four blocks of a tiled matmul, and all of them."""
    kernel = kw.cuda.compile(_cpu.MATMUL, backend="emulator")["matmul_tiled"]
    a, b, c = torch.randn(3, SIDE, SIDE)
    grid, block = (SIDE // 16, SIDE // 16), (16, 16)
    arguments = (a, b, c, SIDE, SIDE, SIDE)
    sampled = kernel.trace[grid, block]
    whole = kernel.trace.options(blocks="all", flops=2 * SIDE**3)[grid, block]
    sampled(*arguments)
    before = peak_mb()
    results = {"four_blocks": spread_of(lambda: sampled(*arguments), 9)}
    report = whole(*arguments)
    torch.testing.assert_close(c, a @ b, atol=1e-3, rtol=1e-3)
    report.assert_clean()
    results["all_blocks"] = spread_of(lambda: whole(*arguments), 3)
    accesses = sum(x.requests * x.lanes for x in report.lines)
    return {
        "what": f"matmul_tiled, {SIDE}^3 fp32, 16 x 16 tiles, traced",
        "command": "python -m benchmarks.trace",
        "date": date.today().isoformat(),
        "machine": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "workers": worker_count(),
        "compiler": find_compiler().version,
        "python": platform.python_version(),
        "torch": version("torch"),
        "limits_s": LIMITS_S,
        "results": results,
        "accesses": round(accesses),
        "ns_an_access_and_worker": round(
            results["all_blocks"]["median_s"] * 1e9 * worker_count() / accesses, 2
        ),
        "memory_mb": round(peak_mb() - before, 1),
        "arithmetic_intensity": report.arithmetic_intensity,
    }


if __name__ == "__main__":
    sys.exit(main())
