"""Chapters in Markdown to the notebooks that learners open.

A notebook carries the hash of the cells that were generated, so that one that a
learner has edited can be told from one that is merely old: the first is left
alone, the second is written anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from autograder.authoring.chapters import (
    Cell,
    Chapter,
    ChapterError,
    parse_chapter,
    with_cells_replaced,
)
from autograder.authoring.colab import install_cell
from autograder.authoring.placement import refuse_misplaced
from autograder.authoring.plain import Setting, plain
from autograder.exercise import Exercise
from autograder.regions import ROOT, cell_source
from kernelwright.cache import digest

State = Literal["absent", "ours", "edited", "unreadable"]
Notebook = dict[str, Any]

_REPOSITORY = "https://github.com/kernelwright/kernelwright"
_NOT_IN_AN_ID = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Edition:
    """What notebooks are made from.

    Args:
        root: the checkout, or the student edition.
        exercises: the declarations, by id.
        solved: whether exercise cells hold the answer.
    """

    root: Path
    exercises: Mapping[str, Exercise]
    solved: bool = False

    @property
    def repository(self) -> str:
        """The address that ``_config.yml`` names; one place for all links."""
        path = self.root / "_config.yml"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        found = re.search(r"^repository:\s*\n(?:\s+.*\n)*?\s+url:\s*(\S+)", text, re.M)
        return found.group(1) if found else _REPOSITORY


def with_stubs(text: str, path: Path, edition: Edition) -> str:
    """Return the chapter's Markdown with every exercise cell's stub in its place."""

    def stub(cell: Cell) -> str | None:
        if cell.exercise is None:
            return None
        return cell_source(_declared(cell, path, edition), False, edition.root)

    return with_cells_replaced(text, path, stub)


def _declared(cell: Cell, path: Path, edition: Edition) -> Exercise:
    assert cell.exercise is not None
    if cell.exercise not in edition.exercises:
        raise ChapterError(
            f"{path}:{cell.line}: no exercise is declared as {cell.exercise!r}: "
            "EXERCISES in its chapter's __init__.py has none of that id"
        )
    return edition.exercises[cell.exercise]


def build_notebook(text: str, path: Path, edition: Edition) -> Notebook:
    """Return the notebook of a chapter as the JSON that Jupyter reads.

    Args:
        text: the chapter's Markdown, with its stubs.
        path: the chapter; its images and its name are taken from it.
        edition: exercises, root, solved or not.
    """
    chapter = parse_chapter(text, path)
    setting = Setting(
        path, edition.exercises, edition.root / "benchmarks/results", edition.repository
    )
    cells = [_as_json(cell, chapter, setting, edition) for cell in chapter.cells]
    cells = [cell for cell in cells if _source(cell).strip()]
    colab = _code("colab", install_cell(edition.repository), ["colab"])
    colab["metadata"]["cellView"] = "form"
    colab["metadata"]["jupyter"] = {"source_hidden": True}
    cells.insert(1 if cells and cells[0]["cell_type"] == "markdown" else 0, colab)
    _give_ids(cells)
    made_from = {
        "chapter": path.name,
        "made": digest(json.dumps(cells, sort_keys=True)),
        "cells": cells_hash({"cells": cells}),
    }
    if edition.solved:
        made_from["solved"] = "true"
    return {
        "cells": cells,
        "metadata": {
            "colab": {"toc_visible": True},
            "kernelspec": {
                "display_name": "Python 3",
                "language": "python",
                "name": "python3",
            },
            "kernelwright": made_from,
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _as_json(
    cell: Cell, chapter: Chapter, setting: Setting, edition: Edition
) -> dict[str, Any]:
    if cell.kind == "markdown":
        setting.attachments = {}
        made: dict[str, Any] = {
            "cell_type": "markdown",
            "id": "",
            "metadata": {},
            "source": _lines(plain(cell.source, setting, cell.line)),
        }
        if setting.attachments:
            made["attachments"] = setting.attachments
        return made
    if cell.exercise is None:
        return _plain_code(cell)
    exercise = _declared(cell, chapter.path, edition)
    source = cell.source
    if edition.solved:
        source = cell_source(exercise, True, edition.root)
    made = _code(f"ex-{exercise.id}", source, list(cell.tags))
    made["metadata"]["kernelwright"] = {
        "exercise": exercise.id,
        # Tells an exercise that was begun from one that was not, in any edition.
        "stub": digest(cell.source),
    }
    return made


def _plain_code(cell: Cell) -> dict[str, Any]:
    tags = list(cell.tags)
    checked = re.match(r"check\(\"?(\w+)\"?\)", cell.source)
    named = f"check-{checked.group(1)}" if checked else ""
    made = _code(named, cell.source, tags)
    if "hide-input" in tags:
        made["metadata"]["jupyter"] = {"source_hidden": True}
        made["metadata"]["cellView"] = "form"
    return made


def _code(cell_id: str, source: str, tags: list[str]) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": cell_id,
        "metadata": {"tags": tags} if tags else {},
        "outputs": [],
        "source": _lines(source),
    }


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _source(cell: Mapping[str, Any]) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)


def _give_ids(cells: list[dict[str, Any]]) -> None:
    """Name each cell by its section and its place there.

    An id says where a cell stands and does not move when another section changes.
    """
    section = "start"
    taken = {cell["id"] for cell in cells if cell["id"]}
    for cell in cells:
        first = _source(cell).partition("\n")[0]
        if cell["cell_type"] == "markdown" and first.startswith("#"):
            section = _NOT_IN_AN_ID.sub("-", first.lower()).strip("-")[:48] or "section"
        if cell["id"]:
            continue
        number = 1
        while f"{section}-{number}" in taken:
            number += 1
        cell["id"] = f"{section}-{number}"
        taken.add(cell["id"])


def cells_hash(notebook: Notebook) -> str:
    """Hash what a learner can edit: kinds and sources, in order.

    Outputs, counts, ids and metadata are left out: running a notebook, or saving it
    in Colab, is no edit.
    """
    parts: list[str] = []
    for cell in notebook.get("cells", []):
        source = _source(cell).replace("\r\n", "\n").rstrip("\n")
        parts += [str(cell.get("cell_type")), source]
    return digest(*parts)


def state_of(path: Path) -> State:
    """Say whether the notebook at ``path`` may be written over."""
    if not path.exists():
        return "absent"
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        stored = notebook["metadata"]["kernelwright"]["cells"]
        return "ours" if cells_hash(notebook) == stored else "edited"
    except (ValueError, KeyError, TypeError, AttributeError):
        return "unreadable"


def as_text(notebook: Notebook) -> str:
    """Return the notebook's JSON, in the form in which Jupyter itself saves it."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Written:
    """What became of one file: its path and what was done with it."""

    path: Path
    action: Literal["written", "unchanged", "edited", "unreadable", "stale"]


def write_chapter(
    path: Path, edition: Edition, *, check: bool = False, fresh: bool = False
) -> list[Written]:
    """Write the stubs into a chapter's Markdown, and its notebook beside it.

    Args:
        path: the chapter's Markdown.
        edition: what it is made from.
        check: write nothing; say which file would change (``stale``).
        fresh: write a notebook anew that differs only by its outputs, too.
    """
    text = path.read_text(encoding="utf-8")
    refuse_misplaced(parse_chapter(text, path), edition.exercises)
    stubbed = with_stubs(text, path, edition)
    target = path.with_suffix(".ipynb")
    wanted = build_notebook(stubbed, path, edition)
    return [
        _settle(path, text, stubbed, check),
        _settle_notebook(target, wanted, check, fresh),
    ]


def _settle(path: Path, now: str | None, wanted: str, check: bool) -> Written:
    if now == wanted:
        return Written(path, "unchanged")
    if check:
        return Written(path, "stale")
    path.write_text(wanted, encoding="utf-8")
    return Written(path, "written")


def _settle_notebook(path: Path, wanted: Notebook, check: bool, fresh: bool) -> Written:
    state = state_of(path)
    if state == "edited" or state == "unreadable":
        return Written(path, state)
    now = path.read_text(encoding="utf-8") if state == "ours" else None
    if now is not None and not check and not fresh:
        # A notebook that was only run keeps its outputs.
        made, then = wanted["metadata"], json.loads(now)["metadata"]
        if all(
            then["kernelwright"].get(key) == made["kernelwright"][key]
            for key in ("made", "chapter")
        ):
            return Written(path, "unchanged")
    return _settle(path, now, as_text(wanted), check)


def write_solved(path: Path, edition: Edition, folder: Path) -> Path:
    """Write a chapter's solved notebook into ``folder`` and return its path."""
    solved = Edition(edition.root, edition.exercises, solved=True)
    text = with_stubs(path.read_text(encoding="utf-8"), path, edition)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / path.with_suffix(".ipynb").name
    target.write_text(as_text(build_notebook(text, path, solved)), encoding="utf-8")
    return target


def default_edition(root: Path = ROOT) -> Edition:
    """Return the edition of this checkout."""
    from autograder.exercises import all_exercises

    return Edition(root, all_exercises())
