"""Notebooks: what they hold, that they are stable, and whose edits are safe."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

from autograder.authoring.__main__ import main
from autograder.authoring.notebooks import (
    Edition,
    Notebook,
    build_notebook,
    cells_hash,
    state_of,
    with_stubs,
    write_chapter,
    write_solved,
)
from tests.autograder.authoring.course import lay_out


@pytest.fixture
def course(tmp_path: Path) -> tuple[Edition, Path]:
    edition, chapter = lay_out(tmp_path)
    write_chapter(chapter, edition)
    return edition, chapter


def load(path: Path) -> Notebook:
    return json.loads(path.read_text())


def source(notebook: Notebook, cell_id: str) -> str:
    (cell,) = [c for c in notebook["cells"] if c["id"] == cell_id]
    return "".join(cell["source"])


def test_a_notebook_is_valid_and_holds_no_outputs(course: tuple[Edition, Path]) -> None:
    notebook = nbformat.read(course[1].with_suffix(".ipynb"), as_version=4)
    nbformat.validate(notebook)
    assert all(not c.get("outputs") for c in notebook.cells)
    ids = [c.id for c in notebook.cells]
    assert len(set(ids)) == len(ids)


def test_an_exercise_cell_is_known_and_stubbed(course: tuple[Edition, Path]) -> None:
    notebook = load(course[1].with_suffix(".ipynb"))
    cells = {c["id"]: c for c in notebook["cells"]}
    marks = cells["ex-twice"]["metadata"]["kernelwright"]
    assert marks["exercise"] == "twice"
    assert source(notebook, "ex-twice").startswith("%%cuda\n// exercise: twice\n")
    assert "fill me in (about 4 lines)" in source(notebook, "ex-twice")
    assert source(notebook, "check-twice") == "check(twice)"
    assert "raise NotImplementedError" in source(notebook, "ex-half")


def test_the_stub_stands_in_the_chapter_too(course: tuple[Edition, Path]) -> None:
    text = course[1].read_text()
    assert "// exercise: twice\n__global__ void twice(" in text
    assert "    # fill me in (about 1 line)\n    raise NotImplementedError\n```" in text


def test_no_answer_reaches_a_learner(course: tuple[Edition, Path]) -> None:
    for path in (course[1], course[1].with_suffix(".ipynb")):
        text = path.read_text()
        assert "2.0f * x[i]" not in text
        assert "return x / 2" not in text
    assert "Two times is" not in course[1].with_suffix(".ipynb").read_text()


def test_the_solved_notebook_differs_by_its_answers_alone(
    course: tuple[Edition, Path], tmp_path: Path
) -> None:
    solved = load(write_solved(course[1], course[0], tmp_path / "solved"))
    stub = load(course[1].with_suffix(".ipynb"))
    differ = [
        a["id"]
        for a, b in zip(stub["cells"], solved["cells"], strict=True)
        if a["source"] != b["source"]
    ]
    assert differ == ["ex-twice", "ex-half"]
    assert "out[i] = 2.0f * x[i];" in source(solved, "ex-twice")


def test_ids_stay_when_another_section_grows(course: tuple[Edition, Path]) -> None:
    edition, chapter = course
    text = chapter.read_text()
    grown = text.replace("## Setup\n", "## Setup\n\nMore.\n\n+++\n\nAnd more.\n")
    before = {c["id"] for c in build_notebook(text, chapter, edition)["cells"]}
    after = {c["id"] for c in build_notebook(grown, chapter, edition)["cells"]}
    assert before < after


def test_writing_twice_changes_nothing(course: tuple[Edition, Path]) -> None:
    edition, chapter = course
    before = chapter.with_suffix(".ipynb").read_bytes()
    assert [w.action for w in write_chapter(chapter, edition)] == ["unchanged"] * 2
    again = with_stubs(chapter.read_text(), chapter, edition)
    assert again == chapter.read_text()
    assert chapter.with_suffix(".ipynb").read_bytes() == before


def test_a_learners_edit_is_never_written_over(course: tuple[Edition, Path]) -> None:
    edition, chapter = course
    path = chapter.with_suffix(".ipynb")
    notebook = load(path)
    notebook["cells"][-1]["source"] = ["my own\n", "words"]
    path.write_text(json.dumps(notebook))
    mine = path.read_bytes()
    chapter.write_text(chapter.read_text() + "\nA new line.\n")
    assert [w.action for w in write_chapter(chapter, edition)] == [
        "unchanged",
        "edited",
    ]
    assert path.read_bytes() == mine


def test_running_a_notebook_is_no_edit(course: tuple[Edition, Path]) -> None:
    edition, chapter = course
    path = chapter.with_suffix(".ipynb")
    notebook = load(path)
    code = next(c for c in notebook["cells"] if c["cell_type"] == "code")
    code["execution_count"] = 3
    code["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "hello"}]
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])  # as some tools save it
        cell["metadata"]["id"] = cell.pop("id")  # as Colab does
    path.write_text(json.dumps(notebook))
    assert state_of(path) == "ours"
    ran = path.read_bytes()
    assert write_chapter(chapter, edition)[1].action == "unchanged"
    assert path.read_bytes() == ran, "its outputs stay"
    assert write_chapter(chapter, edition, check=True)[1].action == "stale"
    assert write_chapter(chapter, edition, fresh=True)[1].action == "written"
    assert write_chapter(chapter, edition, check=True)[1].action == "unchanged"


def test_a_stale_notebook_is_found_and_written(course: tuple[Edition, Path]) -> None:
    edition, chapter = course
    chapter.write_text(chapter.read_text() + "\nA new line.\n")
    assert write_chapter(chapter, edition, check=True)[1].action == "stale"
    assert write_chapter(chapter, edition)[1].action == "written"
    assert write_chapter(chapter, edition, check=True)[1].action == "unchanged"


def test_a_renumbered_chapters_notebook_is_written(
    course: tuple[Edition, Path],
) -> None:
    edition, path = course
    write_chapter(path, edition)
    later = path.with_name("02_doubling.md")
    path.rename(later)
    path.with_suffix(".ipynb").rename(later.with_suffix(".ipynb"))
    assert write_chapter(later, edition, check=True)[1].action == "stale"
    assert write_chapter(later, edition)[1].action == "written"
    assert write_chapter(later, edition, check=True)[1].action == "unchanged"


@pytest.mark.parametrize("text", ["", "not JSON", "[]", '{"cells": []}', '{"a": 1}'])
def test_what_is_not_ours_is_left_alone(
    text: str, course: tuple[Edition, Path]
) -> None:
    edition, chapter = course
    path = chapter.with_suffix(".ipynb")
    path.write_text(text)
    assert write_chapter(chapter, edition)[1].action == "unreadable"
    assert path.read_text() == text


def test_the_install_cell_runs_on_colab_only(course: tuple[Edition, Path]) -> None:
    code = source(load(course[1].with_suffix(".ipynb")), "colab")
    assert "https://example.org/course.git" in code
    compile(code, "colab", "exec")
    names: dict[str, object] = {}
    exec(code, names)
    assert "subprocess" not in names, "elsewhere it does nothing"
    assert "-c" in code and "torch" in code.partition("kept = ")[2].partition("]")[0]


def test_the_hash_tells_cells_apart() -> None:
    def one(*sources: str) -> str:
        cells = [{"cell_type": "code", "source": s} for s in sources]
        return cells_hash({"cells": cells})

    assert one("a", "b") != one("b", "a")
    assert one("ab") != one("a", "b")
    assert one("a\n") == one("a"), "an editor's last newline is no edit"


def test_the_checkouts_own_notebooks_are_in_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check"]) == 0, capsys.readouterr().out
