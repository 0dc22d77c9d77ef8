"""Measure the trace: a tiled matmul, four blocks sampled and all.

``python benchmarks/trace.py`` writes ``benchmarks/results/trace-cpu.json``.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import kernelwright as kw
from kernelwright.emulator.library import worker_count
from kernelwright.emulator.toolchain import find_compiler

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "trace-cpu.json"
MATMUL = (ROOT / "tests" / "kernels" / "matmul_tiled.cu").read_text()
SIDE = 512
LIMITS_S = {"four_blocks": 0.1, "all_blocks": 10.0}


def seconds_of(run: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Time a call: its median, its best and its worst, in seconds."""
    samples = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        samples.append(time.perf_counter() - begin)
    return {
        "median_s": round(statistics.median(samples), 4),
        "least_s": round(min(samples), 4),
        "most_s": round(max(samples), 4),
        "repeats": repeats,
    }


def peak_mb() -> float:
    """Return the most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure, print and store."""
    kernel = kw.cuda.compile(MATMUL, backend="emulator")["matmul_tiled"]
    a, b, c = torch.randn(3, SIDE, SIDE)
    grid, block = (SIDE // 16, SIDE // 16), (16, 16)
    arguments = (a, b, c, SIDE, SIDE, SIDE)
    sampled = kernel.trace[grid, block]
    whole = kernel.trace.options(blocks="all", flops=2 * SIDE**3)[grid, block]
    sampled(*arguments)
    before = peak_mb()
    results = {"four_blocks": seconds_of(lambda: sampled(*arguments), 9)}
    report = whole(*arguments)
    torch.testing.assert_close(c, a @ b, atol=1e-3, rtol=1e-3)
    report.assert_clean()
    results["all_blocks"] = seconds_of(lambda: whole(*arguments), 3)
    accesses = sum(x.requests * x.lanes for x in report.lines)
    record = {
        "what": f"matmul_tiled, {SIDE}^3 fp32, 16 x 16 tiles, traced",
        "command": "python benchmarks/trace.py",
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
    RESULT.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))
    for name, limit in LIMITS_S.items():
        if results[name]["median_s"] > limit:
            raise SystemExit(f"{name}: {results[name]['median_s']} s, limit {limit} s")


if __name__ == "__main__":
    main()
