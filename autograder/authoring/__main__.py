"""Command line of the authors: ``python -m autograder.authoring --help``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from autograder.authoring.chapters import ChapterError, chapter_files
from autograder.authoring.gated import check_gated
from autograder.authoring.mistakes import MistakeError, record_of
from autograder.authoring.mutation import MutationError, run_mutants
from autograder.authoring.notebooks import (
    Edition,
    Written,
    default_edition,
    write_chapter,
    write_solved,
)
from autograder.authoring.prints import PrintError, write_prints
from autograder.authoring.release import ReleaseError, release
from autograder.authoring.results import ResultsError
from autograder.authoring.runs import run_notebooks
from autograder.authoring.scaffold import (
    ScaffoldError,
    bring_into_step,
    new_chapter,
    what_next,
)
from autograder.authoring.update import update_notebook
from autograder.exercise import Exercise
from autograder.grade import select
from autograder.judge.judge import Judge
from autograder.judge.prints import path_of
from autograder.regions import ROOT, RegionError
from autograder.submission.submitted import References

_ERRORS = (
    *(ChapterError, RegionError, ResultsError, ReleaseError),
    *(MistakeError, MutationError, ScaffoldError),
)
_SAYS = {
    "written": "written",
    "edited": "holds your edits: left alone (`make update` carries them over)",
    "unreadable": "is not a notebook of this course: left alone; move it away",
    "stale": "is not what its source makes: run `make notebooks`",
}


def _notebooks(arguments: argparse.Namespace, edition: Edition) -> int:
    done = _each(arguments, edition, check=False)
    written = sum(1 for one in done if one.action == "written")
    print(f"{len(done) // 2} chapters: {written} files written")
    return 0


def _check(arguments: argparse.Namespace, edition: Edition) -> int:
    done = _each(arguments, edition, check=True)
    wrong = [one for one in done if one.action != "unchanged"]
    if not wrong:
        print(f"{len(done) // 2} chapters in step with their notebooks")
    return 1 if wrong else 0


def _each(
    arguments: argparse.Namespace, edition: Edition, *, check: bool
) -> list[Written]:
    done: list[Written] = []
    fresh = bool(getattr(arguments, "fresh", False))
    for path in chapter_files(arguments.chapters):
        done += write_chapter(path, edition, check=check, fresh=fresh)
    for one in done:
        if one.action != "unchanged":
            print(f"{_shown(one.path)} {_SAYS[one.action]}")
    return done


def _shown(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _update(arguments: argparse.Namespace, edition: Edition) -> int:
    failed = 0
    for path in chapter_files(arguments.chapters):
        one = update_notebook(path, edition)
        name = _shown(one.path)
        if one.problem:
            print(f"{name} {one.problem}")
            failed += 1
            continue
        print(f"{name}: {', '.join(one.carried) or 'no exercise'} carried over")
        if one.orphans:
            print(f"  no longer in this chapter: {', '.join(one.orphans)}")
        if one.own_cells:
            cells = "cell differs" if one.own_cells == 1 else "cells differ"
            print(f"  {one.own_cells} other {cells} from the new edition: see the copy")
        if one.copy:
            print(f"  as it was: {_shown(one.copy)}")
    return 1 if failed else 0


def _solved(arguments: argparse.Namespace, edition: Edition) -> int:
    for path in chapter_files(arguments.chapters):
        print(_shown(write_solved(path, edition, arguments.out)))
    return 0


def _release(arguments: argparse.Namespace, edition: Edition) -> int:
    count = release(edition, arguments.out)
    print(f"student edition: {count} files in {_shown(arguments.out)}")
    return 0


def _nbval(arguments: argparse.Namespace, edition: Edition) -> int:
    return run_notebooks(arguments.chapters, edition, arguments.out)


def _mistakes(arguments: argparse.Namespace, edition: Edition) -> int:
    asked = select([arguments.only], References())
    asked = [one for one in asked if record_of(one).exists()]
    if not asked:
        print(f"{arguments.only} has no records of mistakes")
        return 1
    failed = 0
    with Judge(seed=0, device="cpu", public=True) as judge:
        for exercise in asked:
            try:
                count = write_prints(exercise, judge)
            except (MistakeError, PrintError) as error:
                print(f"error: {error}", file=sys.stderr)
                failed += 1
                continue
            size = path_of(exercise).stat().st_size / 1024
            print(f"{exercise.id}: {count} prints, {size:.1f} KB", end="", flush=True)
            failed += _with_a_gate(exercise)
    return 1 if failed else 0


def _with_a_gate(exercise: Exercise) -> int:
    """Try the mistakes that have no print; return how many earn another message."""
    with Judge(seed=0, device="cpu") as judge:
        told = list(check_gated(exercise, judge))
    wrong = [words for words in told if words]
    print(f"; {len(told) - len(wrong)} of {len(told)} with a gate earn their message")
    for words in wrong:
        print(f"error: {exercise.id}: {words}", file=sys.stderr)
    return len(wrong)


def _mutants(arguments: argparse.Namespace, edition: Edition) -> int:
    exercises = select(arguments.only, References())
    return run_mutants(exercises, sample=arguments.sample, jobs=arguments.jobs)


def _new_chapter(arguments: argparse.Namespace, edition: Edition) -> int:
    files = new_chapter(arguments.stem, arguments.title)
    print("\n".join(map(str, files)))
    code = bring_into_step(arguments.stem, files)
    if not code:
        print(what_next(arguments.stem, files))
    return code


_COMMANDS: dict[str, Callable[[argparse.Namespace, Edition], int]] = {
    "notebooks": _notebooks,
    "check": _check,
    "update": _update,
    "solved": _solved,
    "release": _release,
    "nbval": _nbval,
    "mistakes": _mistakes,
    "mutants": _mutants,
    "new-chapter": _new_chapter,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m autograder.authoring", description=__doc__
    )
    commands = parser.add_subparsers(dest="command", required=True)
    helps = {
        "notebooks": "write stubs into chapters/*.md and the notebooks beside them",
        "check": "write nothing, fail where a notebook is not what its source makes",
        "update": "write the newest notebooks, with the learner's exercise cells",
        "solved": "write solved notebooks into a folder",
        "release": "write the student edition: no solutions, answers, hidden cases",
        "mistakes": "run the known mistakes and write what they put out",
        "nbval": "run every notebook, untouched and solved",
        "mutants": "grade generic mutants of the answers: none may earn full points",
        "new-chapter": "write all files of a new chapter, with one small exercise",
    }
    for name, words in helps.items():
        one = commands.add_parser(name, help=words)
        one.add_argument("--chapters", type=Path, default=ROOT / "chapters")
        if name == "notebooks":
            one.add_argument("--check", action="store_true", help="the same as `check`")
            one.add_argument(
                "--fresh",
                action="store_true",
                help="write notebooks anew that differ only by their outputs, too",
            )
        if name == "mistakes":
            one.add_argument("--only", default="", help="a chapter or an exercise")
        if name == "new-chapter":
            one.add_argument("stem", help="its name in every path: tensor_cores")
            one.add_argument("title", help="its heading: 'Tensor cores'")
        if name in ("solved", "nbval"):
            one.add_argument("--out", type=Path, default=ROOT / "_build/solved")
        if name == "mutants":
            one.add_argument("--only", action="append", default=[], help="ONLY=")
            one.add_argument("--sample", type=int, default=0, help="so many of them")
            one.add_argument("--jobs", type=int, default=0, help="graders at once")
        if name == "release":
            one.add_argument("--out", type=Path, default=ROOT / "dist/student")
    return parser


def main(words: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = _parser().parse_args(words)
    command = arguments.command
    if command == "notebooks" and arguments.check:
        command = "check"
    try:
        return _COMMANDS[command](arguments, default_edition())
    except (*_ERRORS, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
