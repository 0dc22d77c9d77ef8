"""The house: one stem a topic everywhere, and rooms that know only what they may."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
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


# A new chapter's template has files for every room.
EXEMPT = ROOT / "autograder/authoring/template"
MODULES = {
    ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
    for p in SOURCES
    if not p.is_relative_to(EXEMPT)
}


def imports(node: ast.AST, now: bool = True) -> Iterator[tuple[str, int, bool]]:
    """Yield (module, line, whether it is imported at once) for each import in code."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, node.lineno, now) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            yield (full if full in MODULES else node.module), node.lineno, now
    function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    now = now and not (function or typing)
    for inner in ast.iter_child_nodes(node):
        yield from imports(inner, now)


IMPORTS = {
    module: list(imports(ast.parse(path.read_text())))
    for module, path in MODULES.items()
}


def test_rooms_know_only_what_they_may() -> None:
    broken = []
    for module, names in IMPORTS.items():
        package = module.split(".")[0]
        for name, line, _ in names:
            top = name.split(".")[0]
            allowed = {package, *MAY_IMPORT[package]}
            if top in (*PACKAGES, "tests") and top not in allowed:
                broken.append(f"{MODULES[module].relative_to(ROOT)}:{line}: {top}")
    assert not broken, (
        f"wanted {MAY_IMPORT} alone; these import something else: {broken}"
    )


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {
        module: {name for name, _, now in names if now and name in MODULES} - {module}
        for module, names in IMPORTS.items()
    }
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        pytest.fail(f"an import circle: {circle}; move what both need to a third")


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
    wanted = [
        f"autograder/exercises/{stem}/__init__.py",
        f"tests/solutions/test_{stem}.py",
        f"benchmarks/{stem}.py",
    ]
    absent = [path for path in wanted if not (ROOT / path).exists()]
    assert not absent, f"chapter {stem} lacks {absent}"


def test_every_stem_has_a_chapter() -> None:
    stems = {stem for _, stem in chapter_stems()}
    room = ROOT / "autograder" / "exercises"
    folders = {path.parent.name for path in room.glob("*/__init__.py")}
    odd = folders ^ stems
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
