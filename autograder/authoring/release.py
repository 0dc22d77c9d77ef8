"""The student edition: no solutions, no answers, no hidden cases; it still runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from autograder.authoring.chapters import chapter_files, parse_chapter
from autograder.authoring.notebooks import Edition, as_text, build_notebook, with_stubs

# What holds an answer, or proves the grader by means of one.
_LEFT_OUT = (
    "solutions/",
    "autograder/authoring/template/",
    "tests/",
    "benchmarks/",
    ".ci/",
    ".github/",
    ".pre-commit-config.yaml",
    "CONTRIBUTING.md",
)
_KEPT = (
    "benchmarks/results/",
    # Tests of the workbench: `make test` says whether it works on this machine.
    "tests/conftest.py",
    "tests/kernels/",
    "tests/kernelwright/conftest.py",
    "tests/kernelwright/cuda/",
    "tests/kernelwright/emulator/conftest.py",
    "tests/kernelwright/emulator/test_",
    "tests/kernelwright/measure/",
)
# Of a chapter's exercises: hidden cases, mistakes as edits of the answer, the answer.
_LEFT_OUT_OF_A_CHAPTER = re.compile(
    r"autograder/exercises/\w+/(hidden\.py|\w+_answer\.py|\w+\.toml|\w+\.cu)"
)
_NO_SOLUTIONS = '"""The student edition has no solutions."""\n'
_LEFT_OUT_HERE = (
    "*Left out of this edition: a cell that runs the course's own `solutions/`.*\n"
)
_CODE_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n.*?^```[ \t]*\n", re.M | re.S)
_FOR_TEACHERS = re.compile(
    r"^(?:<!--|#) for teachers.*?^(?:<!--|#) /for teachers[^\n]*\n\n?", re.M | re.S
)
_SOLUTION = re.compile(
    r"^(:{3,}|`{3,})\{solution\}[^\n]*\n.*?^\1[ \t]*\n(?:[ \t]*\n)?", re.M | re.S
)


class ReleaseError(Exception):
    """The student edition cannot be written as things stand."""


def release(source: Edition, target: Path, files: Iterable[str] | None = None) -> int:
    """Write the student edition into ``target`` and return how many files it has.

    Args:
        source: the checkout that it is made from.
        target: a folder that is empty or not there.
        files: the paths to take, relative to the root; by default what git tracks.

    Raises:
        ReleaseError: the target is in use, or git is not there to list the files.
    """
    if target.exists() and any(target.iterdir()):
        raise ReleaseError(f"{target} is not empty; remove it or name another --out")
    tracked = list(files) if files is not None else _tracked(source.root)
    count = 0
    for name in tracked:
        if not _goes_along(name):
            continue
        to = target / name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.root / name, to)
        shutil.copymode(source.root / name, to)
        count += 1
    rooms = target / "solutions"
    rooms.mkdir(parents=True)
    (rooms / "__init__.py").write_text(_NO_SOLUTIONS, encoding="utf-8")
    for path in chapter_files(target / "chapters"):
        _write_chapter(source, path, target)
    for path in (target / "README.md", target / "Makefile"):
        if path.exists():
            text = path.read_text(encoding="utf-8")
            path.write_text(_FOR_TEACHERS.sub("", text), encoding="utf-8")
    return count


def _tracked(root: Path) -> list[str]:
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ReleaseError(f"git does not list the files of {root}: {error}") from None
    names = [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    return [name for name in names if (root / name).is_file()]


def _goes_along(name: str) -> bool:
    path = PurePosixPath(name).as_posix()
    if path.startswith("chapters/") and path.endswith(".ipynb"):
        return False  # made anew, from the chapter without its answers
    if _LEFT_OUT_OF_A_CHAPTER.fullmatch(path):
        return False
    return path.startswith(_KEPT) or not path.startswith(_LEFT_OUT)


def _write_chapter(source: Edition, path: Path, target: Path) -> None:
    text = with_stubs(path.read_text(encoding="utf-8"), path, source)
    text = without_answers(text, path)
    path.write_text(text, encoding="utf-8")
    student = Edition(target, source.exercises)
    notebook = as_text(build_notebook(text, path, student))
    path.with_suffix(".ipynb").write_text(notebook, encoding="utf-8")


def without_answers(text: str, path: Path) -> str:
    """Return a chapter without its solutions and the cells that need them.

    A line says where a cell stood, since the text around it speaks of what it shows. A
    sentence that led to it, with a colon, ends there.
    """
    text = _SOLUTION.sub("", text)

    def keep(match: re.Match[str]) -> str:
        # The cell is read by the one reader of cells, so that both agree on tags.
        front = "---\n---\n"
        (cell,) = parse_chapter(front + match.group(0), path).cells
        return _LEFT_OUT_HERE if "needs-solutions" in cell.tags else match.group(0)

    return _CODE_CELL.sub(keep, text).replace(
        f":\n\n{_LEFT_OUT_HERE}", f".\n\n{_LEFT_OUT_HERE}"
    )
