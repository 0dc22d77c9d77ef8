"""The house: one stem a topic everywhere, and rooms that know only what they may."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("kernelwright", "solutions", "autograder")
# What a package may import of the project, beside itself.
MAY_IMPORT = {
    "kernelwright": set(),
    "solutions": {"kernelwright"},
    "autograder": {"kernelwright"},
}
SOURCES = [p for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py"))]


def project_imports(path: Path) -> list[tuple[int, str]]:
    """List (line, package) for each import of a package of ours."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        tops = {name.split(".")[0] for name in names}
        found += [(node.lineno, top) for top in tops if top in (*PACKAGES, "tests")]
    return found


# A wrong answer is a student's cell: it may say what it likes. A new chapter's template
# has files for every room.
EXEMPT = [ROOT / "autograder/wrong", ROOT / "autograder/authoring/template"]


@pytest.mark.parametrize(
    "path",
    [p for p in SOURCES if not any(p.is_relative_to(room) for room in EXEMPT)],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_rooms_know_only_what_they_may(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    broken = [
        f"{path.relative_to(ROOT)}:{line} imports {top}"
        for line, top in project_imports(path)
        if top != package and top not in MAY_IMPORT[package]
    ]
    assert not broken, f"{package} may import only {MAY_IMPORT[package]}: {broken}"


def chapter_stems() -> list[tuple[str, str]]:
    names = sorted((ROOT / "chapters").glob("*.md"))
    matches = [re.fullmatch(r"(\d\d)_(\w+)", path.stem) for path in names]
    assert all(matches), f"a chapter is NN_stem.md: {[p.name for p in names]}"
    return [(m[1], m[2]) for m in matches if m]


def test_chapters_are_numbered_from_one_without_a_gap() -> None:
    numbers = [int(number) for number, _ in chapter_stems()]
    assert numbers == list(range(1, len(numbers) + 1)), (
        "CONTRIBUTING.md says how a chapter is removed, and those behind it renumbered"
    )


@pytest.mark.parametrize("stem", [stem for _, stem in chapter_stems()])
def test_a_stem_is_the_same_everywhere(stem: str) -> None:
    either = [f"solutions/{stem}.py", f"solutions/{stem}/__init__.py"]
    assert any((ROOT / path).exists() for path in either), f"wanted one of {either}"
    # A chapter's folder, or what it was before there were folders.
    folder, *older = (
        f"autograder/exercises/{stem}/__init__.py",
        f"autograder/exercises/{stem}.py",
        f"autograder/wrong/{stem}",
    )
    wanted = [
        *([folder] if (ROOT / folder).exists() else older),
        f"tests/solutions/test_{stem}.py",
        f"benchmarks/{stem}.py",
    ]
    absent = [path for path in wanted if not (ROOT / path).exists()]
    assert not absent, f"chapter {stem} lacks {absent}"


def test_every_stem_has_a_chapter() -> None:
    stems = {stem for _, stem in chapter_stems()}
    room = ROOT / "autograder" / "exercises"
    folders = {path.parent.name for path in room.glob("*/__init__.py")}
    odd = (folders | {path.stem for path in room.glob("[!_]*.py")}) ^ stems
    assert not odd, (
        f"a chapter without exercises, or exercises without a chapter: {sorted(odd)}; "
        "CONTRIBUTING.md lists what a chapter is made of"
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_a_stray_folder_does_not_shadow_a_package(package: str, tmp_path: Path) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "notes.txt").write_text("a learner's own folder")
    code = f"import {package}; print({package}.__file__)"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.strip()) == ROOT / package / "__init__.py"


def test_nothing_names_a_machine_of_ours() -> None:
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    # Spelt in two halves, so that this file does not find itself.
    pattern = re.compile(r"(?<![\w.])/(?:wo" + r"rk|ro" + r"ot|fa" + r"rm)/")
    guilty = []
    for name in filter(None, files):
        text = (ROOT / name).read_text(errors="ignore")
        if pattern.search(text):
            guilty.append(name)
    assert not guilty
