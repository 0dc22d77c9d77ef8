"""Run the notebooks from top to bottom: as a learner opens them, and solved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from autograder.authoring.chapters import chapter_files
from autograder.authoring.notebooks import Edition, write_solved

# A cell waits for a compiler at worst; a notebook that hangs must not hang CI.
_CELL_TIMEOUT_S = 120


def run_notebooks(chapters: Path, edition: Edition, solved: Path) -> int:
    """Run every chapter's notebook untouched, and solved; return pytest's exit code.

    Only errors count: what a cell prints depends on the machine. That the answers
    pass their checks is the grader's to say, and the book's.

    Args:
        chapters: the folder with the notebooks.
        edition: what the solved ones are made from.
        solved: the folder that they are written into.
    """
    notebooks: list[Path] = []
    for path in chapter_files(chapters):
        notebooks.append(path.with_suffix(".ipynb"))
        notebooks.append(write_solved(path, edition, solved))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--quiet",
        "--nbval-lax",
        "--nbval-current-env",
        f"--nbval-cell-timeout={_CELL_TIMEOUT_S}",
        # Two notebooks at a time, each whole in one process.
        "--numprocesses=2",
        "--dist=loadfile",
        # The pages' own warnings are not the notebooks'.
        "-p",
        "no:cacheprovider",
        *map(str, notebooks),
    ]
    return subprocess.run(command, cwd=edition.root).returncode
