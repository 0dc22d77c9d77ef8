"""Measure what weights of four bits cost the CPU: packing them, and opening a file.

    python -m benchmarks.packing           measure and store
    python -m benchmarks.packing --check   and hold against the limits

Codes of 1 GB of bf16 weights are packed; beside it torch copies as many bytes as that
reads and writes, in turn. The file is of 4 GB, most of which nothing reads. It writes
``results/packing-cpu.json``.
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import sys
import tempfile
from collections.abc import Mapping
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks import _cpu
from kernelwright.emulator.toolchain import find_compiler
from solutions.int4 import Packed, load_mmap, pack, save
from solutions.int4.layout import COLUMNS, ROWS
from solutions.int4.quantization import Quantized

SIDE, GROUP = 8192, 128
MATRICES = 8  # 8192 x 8192 in bf16 are 128 MiB
ROUNDS = 7
FILE_BYTES = 2**32
LIMITS = {"of_copy": 0.3, "open_ms": 50.0}


def main() -> int:
    """Measure, print and store; with ``--check``, judge."""
    return _cpu.run("packing-cpu", __doc__, measured, misses)


def misses(record: Mapping[str, Any]) -> list[str]:
    """Return which figures are on the wrong side of their limit."""
    results = record["results"]
    wrong = []
    if results["of_copy"] < LIMITS["of_copy"]:
        wrong.append(f"packing: {results['of_copy']} of a copy's speed")
    if results["open_ms"] > LIMITS["open_ms"]:
        wrong.append(f"opening: {results['open_ms']} ms")
    return wrong


def measured() -> dict[str, Any]:
    """Pack beside copies, and open a file."""
    return {
        "what": f"{MATRICES} matrices {SIDE} x {SIDE}, groups of {GROUP}",
        "command": "python -m benchmarks.packing",
        "date": date.today().isoformat(),
        "machine": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "compiler": find_compiler().version,
        "python": platform.python_version(),
        "torch": version("torch"),
        "limits": LIMITS,
        "results": packing() | opening(),
    }


def packing() -> dict[str, Any]:
    """Time packing and copies of as many bytes, in turn."""
    codes = torch.randint(0, 16, (SIDE, SIDE), dtype=torch.uint8)
    scales = torch.rand(SIDE, SIDE // GROUP)
    zeros = torch.full(scales.shape, 8, dtype=torch.uint8)
    quantized = Quantized(codes, scales, zeros, GROUP)
    packed = pack(quantized)
    moved = codes.nbytes + packed.words.nbytes
    source = torch.ones(moved // 2, dtype=torch.uint8)
    ratios, seconds = [], []
    for _ in range(ROUNDS):
        (ours,) = _cpu.seconds_of(lambda: [pack(quantized) for _ in range(MATRICES)], 1)
        (copy,) = _cpu.seconds_of(lambda: [source.clone() for _ in range(MATRICES)], 1)
        ratios.append(copy / ours)
        seconds.append(ours)
    return {
        "packing_s": round(statistics.median(seconds), 3),
        "packing_gbps": round(MATRICES * moved / statistics.median(seconds) / 1e9, 2),
        "of_copy": round(statistics.median(ratios), 3),
    }


def opening() -> dict[str, Any]:
    """Time the opening of a file, and say how much of it was then read."""
    down = FILE_BYTES // 8 // (ROWS * COLUMNS // 2)
    rows, across = 2048 * ROWS, down // 2048
    words = torch.zeros(2048, across, 32, 4, dtype=torch.int32)
    scales = torch.zeros(1, rows)
    one = Packed(words, scales, scales.to(torch.uint8), rows, across * COLUMNS,
                 across * COLUMNS)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.kw4"
        save(path, {f"layer{i}": one for i in range(8)})
        size = path.stat().st_size
        times = _cpu.seconds_of(lambda: load_mmap(path), ROUNDS)
        before = resource.getrusage(resource.RUSAGE_SELF)
        load_mmap(path)
        after = resource.getrusage(resource.RUSAGE_SELF)
    faults = (after.ru_majflt - before.ru_majflt) + (after.ru_minflt - before.ru_minflt)
    return {
        "file_gb": round(size / 1e9, 2),
        "open_ms": round(1e3 * statistics.median(times), 3),
        "pages_touched": faults,
    }


if __name__ == "__main__":
    sys.exit(main())
