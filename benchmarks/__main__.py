"""Run the benchmarks: ``python -m benchmarks [stem …] [--check]``.

All values are checked first, side by side, for that is mostly compiling; what is right
is then timed, one after the other, with the machine to itself.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """Check, then time each stem in a process of its own; return how many failed."""
    stems = sorted(p.stem for p in HERE.glob("*.py") if not p.stem.startswith("_"))
    parser = argparse.ArgumentParser(
        prog="make bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("stems", nargs="*", help=f"some of: {', '.join(stems)}")
    parser.add_argument(
        "--check",
        action="store_true",
        help="hold each figure against its floor; without stems: all that have one",
    )
    options = parser.parse_args()
    unknown = sorted(set(options.stems) - set(stems))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(stems)}")
    asked = options.stems or [s for s in stems if not options.check or is_judged(s)]
    wrong = failed_checks([stem for stem in asked if has_values(stem)])
    low = [
        stem
        for stem in asked
        if stem not in wrong and not is_timed_well(stem, options.check)
    ]
    for what, found in (("wrong values", wrong), ("failed or below a floor", low)):
        if found:
            print(f"{what}: {', '.join(found)}")
    return len(wrong) + len(low)


def text_of(stem: str) -> str:
    """Return a benchmark's source."""
    return (HERE / f"{stem}.py").read_text(encoding="utf-8")


def is_judged(stem: str) -> bool:
    """Whether a benchmark holds what it measures against anything."""
    return "--check" in text_of(stem)


def has_values(stem: str) -> bool:
    """Whether its values can be checked by themselves."""
    return "_command.run(" in text_of(stem)


def failed_checks(stems: Sequence[str]) -> list[str]:
    """Check the values of all, side by side; return those that are wrong."""
    began = time.monotonic()

    def check(stem: str) -> bool:
        command = [sys.executable, "-m", f"benchmarks.{stem}", "--only-correct"]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode:
            print(f"== {stem}: wrong\n{done.stdout}", flush=True)
        return done.returncode == 0

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        right = list(pool.map(check, stems))
    if stems:
        seconds = time.monotonic() - began
        print(
            f"== values: {sum(right)} of {len(stems)} right ({seconds:.0f} s)",
            flush=True,
        )
    return [stem for stem, good in zip(stems, right, strict=True) if not good]


def is_timed_well(stem: str, check: bool) -> bool:
    """Time a benchmark, its values known to be right; return whether all held."""
    print(f"== {stem}", flush=True)
    began = time.monotonic()
    command = [sys.executable, "-m", f"benchmarks.{stem}"]
    command += ["--only-time"] * has_values(stem) + ["--check"] * check
    code = subprocess.call(command)
    print(f"== {stem}: exit code {code} ({time.monotonic() - began:.0f} s)", flush=True)
    return code == 0


if __name__ == "__main__":
    sys.exit(main())
