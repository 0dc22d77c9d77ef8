"""A new chapter, made in a copy of the tree: whole as it stands, then thrown away."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autograder.authoring.scaffold import (
    PROMPT,
    TEMPLATE,
    ScaffoldError,
    new_chapter,
)
from autograder.regions import ROOT

# As long as they may be: no line of what is made may be too long then.
STEM, TITLE = (
    "as_long_as_a_stem_may_be",
    "A title that is as long as any, (1) of 'fifty' + ",
)
FILES = (
    "tests/test_layout.py",
    "tests/test_readme.py",
    "tests/autograder/test_exercises.py",
    "tests/benchmarks/test_rows.py",
    f"tests/solutions/test_{STEM}.py",
)
TESTS = f"{STEM} or test_readme or numbered or every_stem"
PAGE = """
import sys
sys.path[:0] = ["book/extensions", "."]
extensions = ["myst_nb", "kernelwright_book"]
myst_enable_extensions = ["colon_fence", "dollarmath", "deflist", "tasklist"]
nb_execution_mode = "off"
nb_execution_timeout = 300
suppress_warnings = ["ref.term"]  # the glossary is another page
"""


def copy_of_the_tree(to: Path) -> None:
    """Copy what git knows, or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_new_chapter_passes_at_once(tmp_path: Path) -> None:
    copy_of_the_tree(tmp_path)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    environment["PYTHONPATH"] = str(tmp_path)
    environment["KERNELWRIGHT_BACKEND"] = "emulator"

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    make = ("make", "--no-print-directory", f"PYTHON={sys.executable}")
    run("git", "init", "--quiet")
    said = run(*make, "new-chapter", f"STEM={STEM}", f"TITLE={TITLE}")
    assert f"{STEM}: 2 prints" in said and "Now:" in said
    run("git", "add", "-A")
    assert "in step with their notebooks" in run(*make, "lint")
    graded = run(*make, "grade", "SUBMISSION=solutions", f"ONLY={STEM}")
    assert "Points: 10 / 10" in graded
    run(sys.executable, "-m", "pytest", "-q", *FILES, "-k", TESTS)
    page = next((tmp_path / "chapters").glob(f"*_{STEM}.md")).stem
    (tmp_path / "conf.py").write_text(PAGE)
    # The page alone; `make book` renders it with all others.
    only = (f"master_doc=chapters/{page}", f"include_patterns=chapters/{page}.md")
    sphinx = (sys.executable, "-m", "sphinx", "-qWE", "-b", "html", ".", "html")
    run(*sphinx, *(f"-D{one}" for one in only))
    html = (tmp_path / f"html/chapters/{page}.html").read_text()
    assert "kw-solution" in html and "Not measured yet" in html


def test_no_prompt_is_left_in_the_course() -> None:
    # Whoever works on a new chapter may leave this one red until the text is written.
    rooms = ("chapters/*.md", "README.md", "book", "solutions", "autograder/exercises")
    left = subprocess.run(
        ["git", "grep", "-n", PROMPT, "--", *rooms],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert left.returncode == 1, f"text is due here:\n{left.stdout}{left.stderr}"


def lay_out(root: Path) -> None:
    """Write a tree with nothing but a chapter 4 and the lists of chapters."""
    page = "chapters/04_reduction"
    for name, text in {
        f"{page}.md": "",
        "_toc.yml": f"    chapters:\n      - file: {page}\n  - caption: x\n",
        "book/index.md": f"| 4 | [Reduction](../{page}.md) | x |\n\nEnd.\n",
        "README.md": f"| [4 Reduction]({page}.md) | x | y |\n\nEnd.\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_it_takes_the_next_number_and_is_listed_last(tmp_path: Path) -> None:
    lay_out(tmp_path)
    made = new_chapter("scan", "Prefix sums", tmp_path)
    assert Path("chapters/05_scan.md") in made
    assert len(made) == len([p for p in TEMPLATE.rglob("*.*") if p.is_file()]) + 3
    assert (tmp_path / "_toc.yml").read_text().splitlines()[2] == (
        "      - file: chapters/05_scan"
    )
    for page in ("book/index.md", "README.md"):
        row = (tmp_path / page).read_text().splitlines()[1]
        assert "Prefix sums](" in row and "chapters/05_scan.md) | To write: " in row
    for path in made:
        text = (tmp_path / path).read_text()
        assert "new_stem" not in text and "New title" not in text, path


@pytest.mark.parametrize(
    ("stem", "title", "says"),
    [
        ("Scan", "Scan", "wanted small letters"),
        ("2_scans", "Scan", "wanted small letters"),
        ("lambda", "Scan", "wanted small letters"),
        ("scan", 'A "scan"', "with a capital first"),
        ("reduction", "Again", "is there already: chapters/04_reduction.md"),
        ("block_sum", "Scan", "chapter reduction has an exercise block_sum"),
    ],
)
def test_what_is_taken_or_will_not_do_is_refused(
    stem: str, title: str, says: str, tmp_path: Path
) -> None:
    lay_out(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ScaffoldError, match=says):
        new_chapter(stem, title, tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
