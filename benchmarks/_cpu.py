"""What the emulator's own benchmarks share: calls timed on a CPU, limits, storing."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks._store import OUT, said_of, write

KERNELS = Path(__file__).parents[1] / "tests" / "kernels"
MATMUL = (KERNELS / "matmul_tiled.cu").read_text()


def seconds_of(run: Callable[[], Any], repeats: int) -> list[float]:
    """Time a call several times; return the seconds of each."""
    samples = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        samples.append(time.perf_counter() - begin)
    return samples


def run(
    name: str,
    about: str | None,
    measured: Callable[[], dict[str, Any]],
    misses: Callable[[Mapping[str, Any]], list[str]],
) -> int:
    """Measure, print and store; with ``--check``, return how many figures are missed.

    Args:
        name: of the file among the results.
        about: what ``--help`` says.
        measured: returns the record.
        misses: says which of its figures are on the wrong side of their limit.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="hold each figure against its limit"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="folder for it")
    options = parser.parse_args()
    record = measured()
    path = write(name, record, options.out)
    print(json.dumps(record, indent=1))
    print(said_of(path))
    wrong = misses(record) if options.check else []
    print("\n".join(wrong), end="\n" if wrong else "")
    return len(wrong)
