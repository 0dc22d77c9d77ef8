"""Measure the emulator: a tiled matmul, a launch, a build, and Numba's simulator.

    python -m benchmarks.emulator           measure and store
    python -m benchmarks.emulator --check   and hold against the limits

It writes ``results/emulator-cpu.json``. Both runs of the comparison with Numba happen
in the one process tree, one after the other.
"""

from __future__ import annotations

import ctypes
import os
import platform
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _cpu
from kernelwright.emulator import Library
from kernelwright.emulator.library import worker_count
from kernelwright.emulator.toolchain import find_compiler

EMPTY = "__global__ void k() {}"

LIMITS_S = {
    "matmul_tiled_512_fp32_16x16": 0.30,
    "launch_1024_threads": 0.0003,
    "build_uncached_warm": 0.30,
}

NUMBA = """
import time
import numpy as np
from numba import cuda, float32

@cuda.jit
def matmul(a, b, c):
    a_tile = cuda.shared.array((16, 16), float32)
    b_tile = cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row = cuda.blockIdx.y * 16 + y
    col = cuda.blockIdx.x * 16 + x
    total = float32(0.0)
    for start in range(0, a.shape[1], 16):
        a_tile[y, x] = a[row, start + x]
        b_tile[y, x] = b[start + y, col]
        cuda.syncthreads()
        for i in range(16):
            total += a_tile[y, i] * b_tile[i, x]
        cuda.syncthreads()
    c[row, col] = total

a, b = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
c = np.zeros((64, 64), np.float32)
begin = time.perf_counter()
matmul[(4, 4), (16, 16)](a, b, c)
seconds = time.perf_counter() - begin
assert np.allclose(c, a @ b, atol=1e-3)
print(seconds)
"""


def spread_of(run: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Time a call after a first one: its median, its best and its worst, in seconds."""
    run()
    samples = _cpu.seconds_of(run, repeats)
    return {
        "median_s": statistics.median(samples),
        "low_s": min(samples),
        "high_s": max(samples),
        "samples": len(samples),
    }


def matmul_of(size: int) -> Callable[[], str]:
    """Return a launch of the tiled matmul, checked once against NumPy."""
    library = Library.build(_cpu.MATMUL, filename="matmul.cu", kernels=["matmul_tiled"])
    a, b = np.random.default_rng(0).standard_normal((2, size, size)).astype(np.float32)
    a, b = a.copy(), b.copy()
    c = np.zeros((size, size), np.float32)
    arguments: list[Any] = [ctypes.c_void_p(v.ctypes.data) for v in (a, b, c)]
    arguments += [ctypes.c_int(size)] * 3
    grid = (size // 16, size // 16)
    # The closure keeps the arrays that the addresses point into.
    keep = (a, b, c)

    def launch() -> str:
        assert keep is not None
        return library.launch("matmul_tiled", grid, (16, 16), 0, arguments)

    launch()
    np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)
    return launch


def build_new() -> None:
    """Build a source that no cache can hold."""
    source = f"{_cpu.MATMUL}// {time.time_ns()}\n"
    Library.build(source, filename="matmul.cu", kernels=["matmul_tiled"])


def numba_simulator() -> float:
    """Run the same algorithm once in Numba's CUDA simulator; return its seconds."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(NUMBA)],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def processor_name() -> str:
    """Return the processor's name as Linux gives it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def misses(result: Mapping[str, Any]) -> list[str]:
    """Return which figures are on the wrong side of what the design asks."""
    wrong = [
        f"{name}: {result[name]['median_s']:.4g} s, wanted at most {limit:g} s"
        for name, limit in LIMITS_S.items()
        if result[name]["median_s"] > limit
    ]
    if result["times_numba_simulator"] < 1000:
        wrong.append(f"{result['times_numba_simulator']:.0f} times Numba, wanted 1000")
    return wrong


def main() -> int:
    """Measure everything, print it and store it; with ``--check``, judge it."""
    return _cpu.run("emulator-cpu", __doc__, measured, misses)


def measured() -> dict[str, Any]:
    """Time matmul, launch, build, and Numba's simulator."""
    empty = Library.build(EMPTY, filename="k.cu", kernels=["k"])
    small = spread_of(matmul_of(64), 50)
    numba = numba_simulator()
    return {
        "date": date.today().isoformat(),
        "machine": {
            "processor": processor_name(),
            "cores": len(os.sched_getaffinity(0)),
            "workers": worker_count(),
            "system": platform.platform(),
        },
        "versions": {
            "python": platform.python_version(),
            "compiler": find_compiler().version,
            "numpy": np.__version__,
            "numba": version("numba"),
        },
        "matmul_tiled_512_fp32_16x16": spread_of(matmul_of(512), 15),
        "launch_1024_threads": spread_of(
            lambda: empty.launch("k", (1,), (1024,), 0, []), 200
        ),
        "build_uncached_warm": spread_of(build_new, 10),
        "build_cached": spread_of(
            lambda: Library.build(EMPTY, filename="k.cu", kernels=["k"]), 20
        ),
        "matmul_tiled_64_fp32_16x16": small,
        "numba_simulator_matmul_64_s": numba,
        "times_numba_simulator": numba / small["median_s"],
    }


if __name__ == "__main__":
    sys.exit(main())
