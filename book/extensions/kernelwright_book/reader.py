"""Chapters as notebooks for the book: run with the answers, shown with the stubs.

A detective's cell is run broken, as the reader first meets it, so that what the text
says of it is what the page shows; the answer takes its place before the check. The
student edition has no answers: there a chapter is run as it stands.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from sphinx.errors import SphinxError

from autograder.authoring.chapters import Cell, Chapter, parse_chapter
from autograder.authoring.notebooks import default_edition, with_stubs
from autograder.regions import cell_source
from kernelwright.cache import digest

# An executed chapter is stale when anything changes that its cells may import or read.
_READ_BY_CHAPTERS = ("kernelwright", "solutions", "autograder", "benchmarks/results")
_SOURCES = {".py", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".json"}

_UNSEEN = "unseen"
_WITH_ANSWER = '<p class="kw-with-answer">With the answer in place:</p>'


class ChapterFailed(SphinxError):
    """A chapter's cell raised while the book was built."""

    category = "A chapter does not run"


def read(text: str, *, path: str, timeout: int, merge_streams: bool) -> NotebookNode:
    """Read a chapter for myst-nb: executed with its answers, showing its stubs."""
    chapter_path = Path(path)
    root = chapter_path.resolve().parents[1]
    edition = default_edition(root)
    chapter = parse_chapter(with_stubs(text, chapter_path, edition), chapter_path)
    solved = has_answers(chapter, root)
    notebook = _solved(chapter, root) if solved else _untouched(chapter)
    key = digest(nbformat.writes(notebook), tree_hash(root), sys.version)
    stored = root / "_build/executed" / f"{chapter_path.stem}.{key}.ipynb"
    if stored.exists():
        executed = nbformat.read(stored, as_version=4)
    else:
        executed = execute(notebook, chapter_path, timeout)
        stored.parent.mkdir(parents=True, exist_ok=True)
        for old in stored.parent.glob(f"{chapter_path.stem}.*.ipynb"):
            old.unlink()
        nbformat.write(executed, stored)
    if merge_streams:
        for cell in executed.cells:
            _merge_streams(cell)
    return _with_stubs_shown(executed, chapter) if solved else executed


def tree_hash(root: Path) -> str:
    """Hash every source file that a chapter's cells may import or read."""
    parts: list[str | bytes] = []
    for folder in _READ_BY_CHAPTERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in _SOURCES and path.is_file():
                parts += [path.relative_to(root).as_posix(), path.read_bytes()]
    return digest(*parts)


def has_answers(chapter: Chapter, root: Path) -> bool:
    """Say whether this checkout holds the answer to every exercise of a chapter."""
    exercises = default_edition(root).exercises
    return all((root / exercises[name].source).exists() for name in chapter.exercises)


def _empty(chapter: Chapter) -> NotebookNode:
    notebook = new_notebook()
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    # Where each cell begins in the chapter, so that a warning names the right line.
    notebook.metadata["source_map"] = [cell.line - 1 for cell in chapter.cells]
    return notebook


def _untouched(chapter: Chapter) -> NotebookNode:
    notebook = _empty(chapter)
    for number, cell in enumerate(chapter.cells):
        name = f"cell-{number}"
        if cell.kind == "markdown":
            notebook.cells.append(new_markdown_cell(cell.source, id=name))
            continue
        metadata = {"tags": list(cell.tags)}
        notebook.cells.append(new_code_cell(cell.source, id=name, metadata=metadata))
    return notebook


def _solved(chapter: Chapter, root: Path) -> NotebookNode:
    exercises = default_edition(root).exercises
    notebook = _empty(chapter)
    waiting = ""
    for number, cell in enumerate(chapter.cells):
        name = f"cell-{number}"
        if cell.kind == "markdown":
            notebook.cells.append(new_markdown_cell(cell.source, id=name))
            continue
        source = cell.source
        if cell.exercise:
            exercise = exercises[cell.exercise]
            answer = cell_source(exercise, True, root)
            if exercise.kind == "detective":
                waiting = answer
            else:
                source = answer
        elif waiting and _is_check(cell):
            notebook.cells.append(new_code_cell(waiting, id=f"{_UNSEEN}-{number}"))
            waiting = ""
        metadata = {"tags": list(cell.tags)}
        notebook.cells.append(new_code_cell(source, id=name, metadata=metadata))
    return notebook


def _is_check(cell: Cell) -> bool:
    return cell.source.startswith("check(")


def execute(notebook: NotebookNode, path: Path, timeout: int) -> NotebookNode:
    """Run the notebook in the chapter's folder and return it with its outputs.

    Raises:
        ChapterFailed: a cell raised; the message holds the cell and the traceback.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    client = NotebookClient(
        notebook,
        # The kernel warns of the ports that it listens on: noise in a build.
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        timeout=timeout,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    # A page has no kernel behind it: a live figure draws all its choices at once.
    settings = {"PYTHONPATH": _python_path(path)}
    try:
        return client.execute(env={**os.environ, **settings})
    except CellExecutionError as error:
        raise ChapterFailed(f"{path}: {error}") from None


def _python_path(path: Path) -> str:
    here = str(path.resolve().parents[1])
    return os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))


def _merge_streams(cell: NotebookNode) -> None:
    merged: list[NotebookNode] = []
    for output in cell.get("outputs", []):
        last = merged[-1] if merged else None
        if (
            last is not None
            and output.output_type == "stream"
            and last.output_type == "stream"
            and last.name == output.name
        ):
            last.text += output.text
        else:
            merged.append(output)
    if cell.cell_type == "code":
        cell.outputs = merged


def _with_stubs_shown(executed: NotebookNode, chapter: Chapter) -> NotebookNode:
    executed.cells = [c for c in executed.cells if not c.id.startswith(_UNSEEN)]
    for cell, shown in zip(executed.cells, chapter.cells, strict=True):
        if shown.exercise:
            cell.source = shown.source
        if _is_check(shown) and cell.outputs:
            _must_have_passed(cell, shown, chapter)
            data = {"text/html": _WITH_ANSWER, "text/plain": ""}
            cell.outputs.insert(0, new_output("display_data", data))
    return executed


def _must_have_passed(cell: NotebookNode, shown: Cell, chapter: Chapter) -> None:
    """Hold the page to what it says: these are checks of the answer, and they pass."""
    for output in cell.outputs:
        said = output.get("data", {}).get("text/plain", "")
        if said and not said.startswith("✓"):
            where = f"{chapter.path}:{shown.line}"
            raise ChapterFailed(f"{where}: the answer does not pass its check:\n{said}")
