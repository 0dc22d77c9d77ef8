"""What a cell of a chapter defines, some cell uses: nothing is shown and left lying."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from autograder.authoring.chapters import chapter_files, read_chapter
from autograder.exercises import all_exercises
from autograder.languages import MAGICS
from autograder.regions import cell_source

CHAPTERS = chapter_files(Path(__file__).parents[1] / "chapters")
# Called in need; and what a reader's circuit may be made of.
FOR_THE_READER = {"hint", "Const", "_"}


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_each_name_is_used(path: Path) -> None:
    defined: set[str] = set()
    used: set[str] = set(FOR_THE_READER)
    for cell in read_chapter(path).cells:
        if cell.kind != "code":
            continue
        used |= loaded(cell.source)
        if cell.exercise:
            used |= loaded(cell_source(all_exercises()[cell.exercise], True))
        else:
            defined |= set(names(tree(cell.source).body))
    assert not defined - used, f"no cell uses {sorted(defined - used)}"


def tree(source: str) -> ast.Module:
    """Read a cell's Python; of one in another language there is none."""
    if source.lstrip().startswith(MAGICS):
        return ast.Module([], [])
    lines = ("" if line.startswith("%") else line for line in source.splitlines())
    return ast.parse("\n".join(lines))


def loaded(source: str) -> set[str]:
    """Return the names whose values a cell asks for."""
    nodes = ast.walk(tree(source))
    return {
        node.id
        for node in nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def names(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield what statements of a cell define, those in loops and branches too."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (
                (each.asname or each.name).partition(".")[0] for each in node.names
            )
        elif isinstance(node, ast.Assign):
            stored = (name for target in node.targets for name in ast.walk(target))
            yield from (
                name.id
                for name in stored
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            )
        else:
            for part in ("body", "orelse", "finalbody"):
                yield from names(getattr(node, part, []))
