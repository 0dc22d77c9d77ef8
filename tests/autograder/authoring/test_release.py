"""The student edition: nothing in it answers, and it stands by itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from autograder.authoring.notebooks import Edition, default_edition
from autograder.authoring.release import (
    ReleaseError,
    release,
    without_answers,
)
from autograder.exercises import all_exercises
from autograder.regions import ROOT, cell_source, read_region
from tests.autograder.authoring.course import lay_out


def test_a_chapter_loses_its_solutions_and_what_needs_them(tmp_path: Path) -> None:
    _, path = lay_out(tmp_path)
    text = without_answers(path.read_text(), path)
    assert "{solution}" not in text and "once plus once" not in text
    assert "import solutions" not in text
    assert text.count("Left out of this edition: a cell") == 1
    cell = "```{code-cell}\n:tags: [needs-solutions]\nimport solutions\n```\n"
    led = without_answers(f"The kernel is this:\n\n{cell}", path)
    assert led.startswith("The kernel is this.\n\n*Left out")
    assert "check(twice)" in text and ":::{hints} twice" in text


def test_a_release_of_the_tiny_course(tmp_path: Path) -> None:
    edition, _ = lay_out(tmp_path / "course")
    target = tmp_path / "student"
    names = [
        p.relative_to(edition.root).as_posix()
        for p in edition.root.rglob("*")
        if p.is_file()
    ]
    release(edition, target, names)
    written = {p.relative_to(target).as_posix() for p in target.rglob("*.*")}
    assert written == {
        "_config.yml",
        "benchmarks/results/tiny.json",
        "benchmarks/results",
        "chapters/01_doubling.ipynb",
        "chapters/01_doubling.md",
        "solutions/__init__.py",
    } - {"benchmarks/results"}
    # The stub is still to be had, from the chapter itself.
    student = Edition(target, edition.exercises)
    for exercise in edition.exercises.values():
        stub = cell_source(exercise, False, edition.root)
        assert cell_source(exercise, False, student.root) == stub
    with pytest.raises(ReleaseError, match="not empty"):
        release(edition, target, names)


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("release") / "student"
    release(default_edition(), target)
    return target


def test_the_readme_offers_no_solutions(student: Path) -> None:
    text = (student / "README.md").read_text()
    assert "make grade" in text and "MIT licence" in text
    assert "solutions" not in text and "for teachers" not in text


def test_its_commands_have_what_they_call(student: Path) -> None:
    makefile = (student / "Makefile").read_text()
    offered = set(re.findall(r"^([a-z-]+):.*##", makefile, re.M))
    assert offered == {
        *("setup", "lab", "grade", "update", "notebooks", "test", "book"),
        *("help", "clean"),
    }
    readme = (student / "README.md").read_text()
    assert set(re.findall(r"\bmake ([a-z-]+)", readme)) <= offered
    files = re.findall(r"(?<!/)\b[\w/]+\.(?:py|ipynb)\b", makefile)
    modules = re.findall(r"-m ((?:solutions|autograder|benchmarks)\S*)", makefile)
    files += [f"{name.replace('.', '/')}/__main__.py" for name in modules]
    assert len(files) > 4
    assert [name for name in files if not (student / name).is_file()] == []


def test_the_tests_that_go_along_find_what_they_import(student: Path) -> None:
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "-p",
            "no:cacheprovider",
        ],
        cwd=student,
        env=os.environ | {"PYTHONPATH": str(student)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-2000:]
    assert "tests/kernelwright/emulator/test_language.py::" in run.stdout


# What shows more of an answer than a quarter, and why it must.
EXCUSED = {
    "flash_triton": "The stub of the next rung, flash_triton_causal, is its walk over "
    "the tiles, of which the learner changes two lines.",
}


def lines_of(text: str, sign: str) -> set[str]:
    """Return a text's lines without comments and blanks, but for the short ones."""
    bare = (re.sub(r"\s", "", line.split(sign)[0]) for line in text.splitlines())
    return {line for line in bare if len(line) >= 12}


def test_no_more_than_a_quarter_of_an_answer_is_in_the_student_edition(
    student: Path,
) -> None:
    """Look for each line that an answer has and its stub has not in every file.

    A line that four exercises or more have, in stub or answer, is nobody's answer: an
    index, a barrier, a shuffle's loop. Notebooks are made of the chapters' lines.
    """
    texts = [
        path.read_text(errors="ignore")
        for path in student.rglob("*")
        if path.is_file() and path.suffix != ".ipynb"
    ]
    signs = {"//", "# "}
    stands = {s: set().union(*(lines_of(text, s) for text in texts)) for s in signs}
    answers = {}
    met: Counter[str] = Counter()
    for exercise in all_exercises().values():
        region = read_region(ROOT / exercise.source, exercise.id)
        sign = "# " if exercise.language == "python" else "//"
        solved, stub = (
            lines_of(text, sign) for text in (region.text_solved, region.text_stub)
        )
        answers[exercise.id] = (sign, solved - stub)
        met.update(solved | stub)
    leaks = []
    for name, (sign, lines) in answers.items():
        own = {line for line in lines if met[line] < 4}
        found = own & stands[sign]
        if len(found) > len(own) / 4 and name not in EXCUSED:
            leaks.append(f"{name}, {len(found)} of {len(own)}: {sorted(found)}")
    assert not leaks, "wanted a quarter of an answer's lines at most:\n" + "\n".join(
        leaks
    )


def test_no_hidden_case_is_in_the_student_edition(student: Path) -> None:
    code = (
        "import torch\n"
        "from autograder.exercises import all_exercises\n"
        "g = torch.Generator()\n"
        "print(sum(len(list(e.hidden(g))) for e in all_exercises().values()))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(student)}
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=student,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip() == "0", run.stderr
    full = sum(len(e.cases) for e in all_exercises().values())
    assert full > 0


def test_of_a_chapters_mistakes_only_what_they_put_out_goes_along(
    student: Path,
) -> None:
    room = student / "autograder/exercises/softmax"
    names = {path.name for path in room.iterdir()}
    assert {"online_update.py", "prints", "shared.py"} <= names
    assert not any(
        name.endswith((".toml", ".cu")) or "hidden" in name for name in names
    )
    kept = (room / "prints/online_update.json").read_text()
    assert "The total holds these values alone" in kept and "edits" not in kept


def test_the_student_editions_chapters_run(student: Path) -> None:
    """Run chapter 1 there with no solutions on the path, and its checks answer."""
    code = (
        "import json, sys, nbformat\n"
        "from nbclient import NotebookClient\n"
        "path = sys.argv[1]\n"
        "notebook = nbformat.read(path, as_version=4)\n"
        "NotebookClient(notebook, timeout=120, kernel_name='python3',\n"
        "    resources={'metadata': {'path': 'chapters'}}).execute()\n"
        "said = [o['data']['text/plain'] for c in notebook.cells\n"
        "        if c.id.startswith('check-') for o in c.outputs if 'data' in o]\n"
        "print('SAID' + json.dumps(said))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(student)}
    run = subprocess.run(
        [sys.executable, "-c", code, "chapters/01_vector_add.ipynb"],
        cwd=student,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    said = json.loads(run.stdout.partition("SAID")[2])
    assert len(said) == 6
    assert not any(words.startswith("✓") for words in said)
    assert not any("Error" in words for words in said), said


def test_the_checkout_is_left_as_it_was(student: Path) -> None:
    assert (ROOT / "solutions/vector_add").is_dir()
    assert not (student / "solutions/vector_add").exists()
