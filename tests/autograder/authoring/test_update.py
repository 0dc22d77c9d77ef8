"""A newer edition: a learner's exercises come along, nothing of theirs is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autograder.authoring.notebooks import Edition, Notebook, state_of, write_chapter
from autograder.authoring.update import update_notebook
from tests.autograder.authoring.course import lay_out

MINE = "%%cuda\n// exercise: twice\n__global__ void twice() { /* mine */ }"


@pytest.fixture
def course(tmp_path: Path) -> tuple[Edition, Path]:
    edition, chapter = lay_out(tmp_path)
    write_chapter(chapter, edition)
    return edition, chapter


def load(path: Path) -> Notebook:
    return json.loads(path.read_text())


def edit(chapter: Path, cell_id: str, source: str) -> None:
    path = chapter.with_suffix(".ipynb")
    notebook = load(path)
    (cell,) = [c for c in notebook["cells"] if c["id"] == cell_id]
    cell["source"] = source
    path.write_text(json.dumps(notebook))


def sources(chapter: Path) -> dict[str, str]:
    cells = load(chapter.with_suffix(".ipynb"))["cells"]
    return {cell["id"]: "".join(cell["source"]) for cell in cells}


def test_exercises_are_carried_into_the_new_text(course: tuple[Edition, Path]) -> None:
    edition, chapter = course
    edit(chapter, "ex-twice", MINE)
    before = chapter.with_suffix(".ipynb").read_bytes()
    chapter.write_text(chapter.read_text().replace("## Halving", "## Halves"))
    done = update_notebook(chapter, edition)
    assert done.carried == ("twice",)
    now = sources(chapter)
    assert now["ex-twice"] == MINE
    assert now["halves-1"].startswith("## Halves")
    assert "raise NotImplementedError" in now["ex-half"]
    assert done.copy is not None and done.copy.read_bytes() == before
    assert state_of(chapter.with_suffix(".ipynb")) == "edited", "still the learner's"


def test_an_exercise_not_begun_gets_the_new_stub(course: tuple[Edition, Path]) -> None:
    edition, chapter = course
    edit(chapter, "ex-twice", MINE)
    solution = edition.root / "solutions/doubling/half.py"
    solution.write_text(solution.read_text().replace("half(x)", "half(x, y)"))
    assert update_notebook(chapter, edition).carried == ("twice",)
    assert "def half(x, y):" in sources(chapter)["ex-half"]


def test_a_cell_without_its_metadata_is_known_by_its_comment(
    course: tuple[Edition, Path],
) -> None:
    edition, chapter = course
    path = chapter.with_suffix(".ipynb")
    notebook = load(path)
    for cell in notebook["cells"]:
        cell["metadata"] = {}
        if cell["id"] == "ex-twice":
            cell["source"] = MINE
    path.write_text(json.dumps(notebook))
    assert "twice" in update_notebook(chapter, edition).carried
    assert sources(chapter)["ex-twice"] == MINE


def test_other_changes_are_counted_and_kept_in_the_copy(
    course: tuple[Edition, Path],
) -> None:
    edition, chapter = course
    edit(chapter, "ex-twice", MINE)
    edit(chapter, "halving-1", "my notes")
    done = update_notebook(chapter, edition)
    assert done.own_cells == 1
    assert done.copy is not None and "my notes" in done.copy.read_text()
    again = update_notebook(chapter, edition)
    assert again.copy is not None and again.copy != done.copy


def test_an_exercise_that_is_gone_is_named(course: tuple[Edition, Path]) -> None:
    edition, chapter = course
    edit(chapter, "ex-twice", MINE)
    text = chapter.read_text()
    first = text.index(":::{exercise} twice")
    chapter.write_text(text[:first] + text[text.index("## Halving") :])
    done = update_notebook(chapter, edition)
    assert done.orphans == ("twice",)
    assert done.copy is not None and "mine" in done.copy.read_text()


def test_an_untouched_notebook_is_only_written(course: tuple[Edition, Path]) -> None:
    edition, chapter = course
    chapter.write_text(chapter.read_text() + "\nMore.\n")
    done = update_notebook(chapter, edition)
    assert (done.carried, done.copy) == ((), None)
    assert "More." in chapter.with_suffix(".ipynb").read_text()


def test_a_broken_file_is_left_and_named(course: tuple[Edition, Path]) -> None:
    edition, chapter = course
    path = chapter.with_suffix(".ipynb")
    path.write_text('{"cells": [')
    done = update_notebook(chapter, edition)
    assert "is not a notebook" in done.problem
    assert path.read_text() == '{"cells": ['
