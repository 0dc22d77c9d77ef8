"""``python -m autograder grade``: what ``make grade`` calls; ``class`` for a class."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

# Exit codes: 0 whatever the score, 2 for a wrong command line, 3 where the grader
# itself failed on an exercise.
OK, USAGE, NOT_GRADED, INTERRUPTED = 0, 2, 3, 130


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
    many = commands.add_parser("class", help="grade all submissions in a folder")
    many.add_argument("folder", type=Path, help="a folder, .ipynb or .zip a student")
    many.add_argument(
        "--jobs",
        type=int,
        default=0,
        help="submissions at a time (default: one a core; one where a GPU is timed)",
    )
    for command in (grade, many):
        _add_shared(command)
    options = parser.parse_args(arguments)
    try:
        if options.command == "class":
            return _grade_class(options)
        return _grade(
            options.submission, options.only, options.seed, options.out, options.device
        )
    except KeyboardInterrupt:
        print(f"\nInterrupted. What was graded is in {options.out}.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read along has gone; what is still printed goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_GRADED
    except OSError as error:
        print(f"Grading stopped: {error}", file=sys.stderr)
        return NOT_GRADED


def _add_shared(command: argparse.ArgumentParser) -> None:
    """Add the options that one submission and a class have in common."""
    command.add_argument(
        "--only",
        action="append",
        default=[],
        help="exercise or chapter, by its name; where a chapter has an exercise of its "
        "own name, CHAPTER/EXERCISE is that exercise (vector_add/vector_add)",
    )
    command.add_argument(
        "--seed", type=int, help="replay what was drawn from this seed"
    )
    command.add_argument(
        "--out", type=Path, default=Path("grades"), help="where to write"
    )
    command.add_argument(
        "--device", choices=("cpu", "cuda"), help="default: what is here"
    )


def _grade(
    name: str, only: list[str], seed: int | None, out: Path, device: str | None
) -> int:
    started = time.monotonic()
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print(
            f"{sys.executable} has no torch. Leave PYTHON= away, and `make` sets up a "
            "Python that has it; or install torch there.",
            file=sys.stderr,
        )
        return USAGE
    from autograder.grade import REPORT, grade, select
    from autograder.judge.judge import Judge
    from autograder.judge.words import clean
    from autograder.report.table import Progress, print_record
    from autograder.submission.submitted import open_submission
    from autograder.supervisor.workers import warm_toolchain
    from autograder.worker import system

    try:
        submission = open_submission(name)
        exercises = select(only, submission)
        opened = Judge(seed=seed, device=device)
    except ValueError as error:
        print(error, file=sys.stderr)
        return USAGE
    # Nobody who runs as the same user may read the supervisor's memory.
    system.set_dumpable(False)
    # A terminal that lacks a sign shows another: that is no reason to stop.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    with opened as judge:
        judge.server.start()
        print(
            f"Grading {clean(submission.name)}: {len(exercises)} exercises", flush=True
        )
        print(f"Sandbox: {judge.server.tier.words}", flush=True)
        warm_toolchain(judge.device)
        record = grade(submission, exercises, judge, out, Progress(len(exercises)))
    # Whoever read along may have gone: the grade stands in the files.
    with contextlib.suppress(BrokenPipeError):
        print_record(record)
        seconds = time.monotonic() - started
        print(f"Report: {out / REPORT} ({seconds:.0f} s)", flush=True)
    failed = [r for r in record.results if r.status == "infrastructure error"]
    return NOT_GRADED if failed else OK


def _grade_class(options: argparse.Namespace) -> int:
    from autograder.classroom.grade_class import TABLE, grade_class, submissions
    from autograder.classroom.progress import Progress
    from autograder.grade import select
    from autograder.judge.judge import Judge
    from autograder.judge.pool import started
    from autograder.submission.submitted import References
    from autograder.supervisor.workers import warm_toolchain
    from autograder.worker import system

    folder, out = options.folder, options.out
    try:
        total = len(submissions(folder, out))
        exercises = select(options.only, References())
        first = Judge(seed=options.seed, device=options.device)
    except ValueError as error:
        print(error, file=sys.stderr)
        return USAGE
    system.set_dumpable(False)
    # Side by side, two would slow each other's kernels down.
    cores = len(os.sched_getaffinity(0)) if first.device == "cpu" else 1
    jobs = max(1, min(options.jobs or cores, total))
    others = (Judge(seed=first.seed, device=first.device) for _ in range(1, jobs))
    with started((first, *others)) as judges:
        print(f"Grading {total} submissions, {jobs} at a time, seed {first.seed}")
        print(f"Sandbox: {first.server.tier.words}", flush=True)
        warm_toolchain(first.device)
        if misfits := first.examine(exercises):
            print("No class is graded on this machine:", file=sys.stderr)
            print(*misfits, sep="\n", file=sys.stderr)
            return NOT_GRADED
        progress = Progress(total)
        rows = grade_class(folder, exercises, judges, out, progress.line)
    print(f"Table: {out / TABLE}; a report for each: {out}/*/report.html")
    return NOT_GRADED if any(row.failed for row in rows) else OK


if __name__ == "__main__":
    sys.exit(main())
