"""Build the book: fetch its scripts, run the chapters, render the pages.

``SOLUTIONS=0`` in the environment builds the edition without answers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT)]

from vendor import VendorError, vendor  # noqa: E402

from autograder.authoring.chapters import chapter_files  # noqa: E402
from autograder.authoring.release import without_answers  # noqa: E402

# Sphinx has told what is wrong by then; Jupyter Book's own traceback only hides it.
_RUN = """
import sys
from jupyter_book.cli.main import main
try:
    main()
except RuntimeError:
    sys.exit(1)
"""


def build(root: Path, solutions: bool) -> Path:
    """Build the book of the course at ``root`` and return its first page.

    Raises:
        SystemExit: a warning or an error; Sphinx has printed it.
    """
    # Jupyter Book puts its pages into _build/html below this folder.
    into = root if solutions else root / "_build/student"
    pages = into / "_build/html"
    shutil.rmtree(pages, ignore_errors=True)
    into.mkdir(parents=True, exist_ok=True)
    vendor(root / "_build/vendor/vendor")
    command = [sys.executable, "-c", _RUN, "build", str(root)]
    command += ["--path-output", str(into), "--all", "-W", "--keep-going", "--quiet"]
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {
        "SOLUTIONS": "1" if solutions else "0",
        "PYTHONPATH": path,
        "PYTHONWARNINGS": os.environ.get("PYTHONWARNINGS", "ignore"),
    }
    run = subprocess.run(command, cwd=root, env=environment)
    if run.returncode != 0:
        raise SystemExit(run.returncode)
    put_notebooks(root, pages)
    if not solutions:
        pages = as_student_edition(pages, root / "_build/student/html")
    return pages / "book/index.html"


def put_notebooks(root: Path, pages: Path) -> None:
    """Let the download button give the learner's notebook, not the book's own."""
    for source in (pages / "_sources/chapters").glob("*.ipynb"):
        learners = root / "chapters" / source.name
        if learners.exists():
            shutil.copyfile(learners, source)
        else:
            source.unlink()


def as_student_edition(pages: Path, target: Path) -> Path:
    """Move the pages to where students' pages lie, without answers in their sources."""
    for source in chapter_files(pages / "_sources/chapters"):
        text = source.read_text(encoding="utf-8")
        source.write_text(without_answers(text, source), encoding="utf-8")
    shutil.rmtree(target, ignore_errors=True)
    shutil.move(pages, target)
    shutil.rmtree(pages.parent)
    return target


def main() -> int:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT)
    arguments = parser.parse_args()
    solutions = os.environ.get("SOLUTIONS", "1") != "0"
    began = time.monotonic()
    try:
        first = build(arguments.root.resolve(), solutions)
    except VendorError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    edition = "" if solutions else ", without answers"
    print(f"The book{edition}, in {time.monotonic() - began:.0f} s:")
    print(f"  {first.as_uri()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
