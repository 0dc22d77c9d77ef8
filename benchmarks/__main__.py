"""Run the benchmarks: ``python -m benchmarks [stem …] [--check]``."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """Run each stem in a process of its own; return how many failed."""
    stems = sorted(p.stem for p in HERE.glob("*.py") if not p.stem.startswith("_"))
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("stems", nargs="*", help=f"some of: {', '.join(stems)}")
    parser.add_argument(
        "--check", action="store_true", help="hold each figure against its floor"
    )
    options = parser.parse_args()
    unknown = sorted(set(options.stems) - set(stems))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(stems)}")
    failed = 0
    for stem in options.stems or stems:
        print(f"== {stem}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{stem}"]
        failed += subprocess.call(command + ["--check"] * options.check) != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
