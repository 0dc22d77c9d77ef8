"""``python -m autograder grade``: what ``make grade`` calls."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

# Exit codes: 0 whatever the score, 2 for a wrong command line, 3 where the grader
# itself failed on an exercise.
OK, USAGE, NOT_GRADED = 0, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and grade."""
    parser = argparse.ArgumentParser(prog="autograder", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    grade = commands.add_parser("grade", help="grade notebooks")
    grade.add_argument(
        "--submission",
        default="chapters",
        help="a folder of notebooks, one notebook, or `solutions` (default: chapters)",
    )
    grade.add_argument(
        "--only", action="append", default=[], help="exercise or chapter, by its name"
    )
    grade.add_argument("--seed", type=int, help="replay what was drawn from this seed")
    grade.add_argument(
        "--out", type=Path, default=Path("grades"), help="where to write"
    )
    grade.add_argument(
        "--device", choices=("cpu", "cuda"), help="default: what is here"
    )
    options = parser.parse_args(arguments)
    only = [name for text in options.only for name in re.split(r"[,\s]+", text) if name]
    return _grade(options.submission, only, options.seed, options.out, options.device)


def _grade(
    name: str, only: list[str], seed: int | None, out: Path, device: str | None
) -> int:
    started = time.monotonic()
    from autograder.grade import REPORT, grade, select
    from autograder.judge import Judge
    from autograder.submission import open_submission
    from autograder.table import Progress, print_record
    from autograder.worker import system
    from autograder.workers import warm_toolchain

    try:
        submission = open_submission(name)
        exercises = select(only, submission)
        opened = Judge(seed=seed, device=device)
    except ValueError as error:
        print(error, file=sys.stderr)
        return USAGE
    # Nobody who runs as the same user may read the oracle's memory.
    system.set_dumpable(False)
    with opened as judge:
        judge.server.start()
        print(f"Grading {submission.name}: {len(exercises)} exercises", flush=True)
        print(f"Sandbox: {judge.server.tier.words}", flush=True)
        warm_toolchain(judge.device)
        record = grade(submission, exercises, judge, out, Progress(len(exercises)))
    print_record(record)
    print(f"Report: {out / REPORT} ({time.monotonic() - started:.0f} s)")
    failed = [r for r in record.results if r.status == "infrastructure error"]
    return NOT_GRADED if failed else OK


if __name__ == "__main__":
    sys.exit(main())
