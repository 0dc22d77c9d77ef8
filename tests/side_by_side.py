"""Run the files of the GPU's tests side by side: ``python tests/side_by_side.py``.

    --processes 6     files at a time; most of a test's time is compiling
    --seconds 400     for all of it, the second try included
    further words     go to pytest, such as --timeout 140

Each file of ``tests`` that has tests marked ``gpu``, but for the speed judge's, which
must be alone, runs in a pytest of its own, the longest first. What fails there is tried
once more with nothing beside it: a test that measures time may fail in company, and
only what fails alone is a failure. Returns 0 if all passed in the end, and names what
has not run.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALONE = "tests/autograder/speed/"
LONGEST = ("flash_attention", "triton", "tensor_cores", "matmul", "layernorm")
"""In the names of files that begin first."""

FAILED = re.compile(r"(?m)^(?:FAILED|ERROR) (\S+)")
NOTHING_RAN = 5  # pytest's exit code where no test was chosen


@dataclass(frozen=True)
class Run:
    """What came of one file.

    Args:
        file: its path.
        code: pytest's exit code; ``None`` where its time was up.
        said: what pytest printed.
    """

    file: str
    code: int | None
    said: str

    @property
    def failed(self) -> list[str]:
        """Name the tests that failed; the whole file where pytest named none."""
        if self.code in (0, NOTHING_RAN, None):
            return []
        return FAILED.findall(self.said) or [self.file]


def files_in_order() -> list[str]:
    """Return the files that hold tests marked gpu, the longest first."""
    found = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if re.search(r"mark\.gpu|on_gpu", path.read_text())
    ]

    def rank(file: str) -> int:
        return next((i for i, word in enumerate(LONGEST) if word in file), len(LONGEST))

    return sorted((f for f in found if not f.startswith(ALONE)), key=rank)


def run(paths: Sequence[str], options: Sequence[str], until: float) -> Run:
    """Run pytest on some paths, until a time by the monotonic clock."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "--tb=short"]
    command += ["-p", "no:cacheprovider", *options, *paths]
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True,
            timeout=max(1.0, until - began),
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode("utf-8", "replace") if late.stdout else ""
        return Run(paths[0], None, said)
    last = (done.stdout.strip().splitlines() or ["nothing"])[-1].strip("= ")
    print(f"{time.monotonic() - began:5.0f} s  {paths[0]}: {last}", flush=True)
    return Run(paths[0], done.returncode, done.stdout + done.stderr)


def main() -> int:
    """Run all, try again what failed, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=400.0)
    options, further = parser.parse_known_args()
    until = time.monotonic() + options.seconds
    with ThreadPoolExecutor(options.processes) as pool:
        runs = list(pool.map(lambda f: run([f], further, until), files_in_order()))
    again = [name for one in runs for name in one.failed]
    cut = [one.file for one in runs if one.code is None]
    code = 0
    if again:
        print(f"alone once more: {len(again)}", flush=True)
        last = run(again, further, until)
        code = 1 if last.code is None else last.code
        print(last.said)
    for file in cut:
        print(f"NOT TO THE END: {file}")
    return code or bool(cut)


if __name__ == "__main__":
    sys.exit(main())
