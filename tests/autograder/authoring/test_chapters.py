"""A chapter's cells, read without jupytext and exactly as jupytext reads them."""

from __future__ import annotations

from pathlib import Path

import jupytext
import pytest

from autograder.authoring.chapters import (
    ChapterError,
    chapter_files,
    exercise_of,
    parse_chapter,
    read_chapter,
    stub_in_chapter,
    with_cells_replaced,
)
from autograder.regions import ROOT
from tests.autograder.authoring.course import CHAPTER, exercises, lay_out

HEAD = "---\njupytext: {}\n---\n"
HERE = Path("01_a.md")


@pytest.mark.parametrize(
    "text",
    [CHAPTER, *(p.read_text() for p in chapter_files(ROOT / "chapters"))],
    ids=lambda text: text[:0] or None,
)
def test_code_cells_are_those_that_jupytext_reads(text: str) -> None:
    theirs = [c for c in jupytext.reads(text, "md:myst").cells if c.cell_type == "code"]
    ours = [c for c in parse_chapter(text, HERE).cells if c.kind == "code"]
    assert [c.source for c in ours] == [c.source for c in theirs]
    assert [list(c.tags) for c in ours] == [c.metadata.get("tags", []) for c in theirs]


def test_sections_and_marks_cut_markdown_into_cells() -> None:
    text = HEAD + "# A\none\n\n## B\ntwo\n+++\nthree\n```python\n## not one\n```\n"
    cells = parse_chapter(text, HERE).cells
    assert [c.source for c in cells] == [
        "# A\none",
        "## B\ntwo",
        "three\n```python\n## not one\n```",
    ]
    assert [c.line for c in cells] == [4, 7, 10]


def test_a_cell_knows_its_line_and_its_exercise() -> None:
    text = HEAD + "# A\n\n```{code-cell} ipython3\n:tags: [x, y]\n\n%%cuda\n"
    text += "// exercise: twice\n```\n"
    (_, cell) = parse_chapter(text, HERE).cells
    assert (cell.line, cell.tags, cell.exercise) == (9, ("x", "y"), "twice")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("%%cuda\n// exercise: a\nx", "a"),
        ("# exercise: b\nx", "b"),
        ("%%cuda -v\n// exercise: c", "c"),
        ("x\n# exercise: b", None),
        ("# exercises: b", None),
    ],
)
def test_an_exercise_is_named_by_the_first_comment(
    source: str, found: str | None
) -> None:
    assert exercise_of(source) == found


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("```{code-cell} ipython3\nx\n", "01_a.md:4: this ``` is never closed"),
        (":::{note}\nx\n", "01_a.md:4: this ::: is never closed"),
        ("```{code-cell} ipython3\n:id: x\n```\n", "takes :tags:"),
        (
            "```{code-cell} ipython3\n:tags: [exercise]\nx\n```\n",
            "begins with %%cuda or %%cpp",
        ),
        ("```{code-cell} ipython3\n# exercise: a\n```\n" * 2, "already has its cell"),
    ],
)
def test_a_malformed_chapter_is_refused(body: str, says: str) -> None:
    with pytest.raises(ChapterError) as caught:
        parse_chapter(HEAD + body, HERE)
    assert says in str(caught.value)


def test_a_chapter_without_front_matter_is_refused() -> None:
    with pytest.raises(ChapterError, match="front matter"):
        parse_chapter("# A\n", HERE)


def test_replacing_a_cell_touches_nothing_else() -> None:
    text = HEAD + "# A\n\n```{code-cell} ipython3\n:tags: [t]\na\nb\n```\n\ntail\n"
    new = with_cells_replaced(text, HERE, lambda cell: "one\ntwo\nthree")
    assert new == text.replace("a\nb\n", "one\ntwo\nthree\n")
    assert with_cells_replaced(text, HERE, lambda cell: None) == text


def test_without_solutions_the_stub_is_the_chapters_own(tmp_path: Path) -> None:
    _, path = lay_out(tmp_path)
    marked = path.read_text().replace("# exercise: half", "# exercise: half\n# mine")
    path.write_text(marked)
    exercise = exercises()["half"]
    assert stub_in_chapter(exercise, path.parent) == "# exercise: half\n# mine"
    assert "twice" in read_chapter(path).exercises
