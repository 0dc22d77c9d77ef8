"""Boxes and cells of exercises belong together; what is forgotten is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from autograder.authoring.chapters import ChapterError
from autograder.authoring.notebooks import write_chapter
from tests.autograder.authoring.course import CHAPTER, lay_out

BOX = ":::{exercise} half\n:::\n\n"
CELL = "```{code-cell} ipython3\n:tags: [exercise]\n# exercise: half\n```\n\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (CHAPTER.replace(CELL, ""), r"md:\d+: the box of half has no cell below it"),
        (CHAPTER.replace(BOX, ""), r"md:\d+: the cell of half has no box above it"),
        (CHAPTER.replace(BOX + CELL, CELL + BOX), "has no box above it"),
        (CHAPTER.replace(BOX + CELL, ""), "md: the exercise half has no place"),
        (
            CHAPTER.replace(CELL, CELL.replace(":tags: [exercise]\n", "")),
            r"the cell of half wants :tags: \[exercise\]",
        ),
        (
            CHAPTER.replace("# needs: half", "# needs: twice, third"),
            r"md:\d+: the cell needs third, of which no cell stands above it",
        ),
    ],
)
def test_what_is_forgotten_is_said(text: str, says: str, tmp_path: Path) -> None:
    edition, path = lay_out(tmp_path)
    assert text != CHAPTER
    path.write_text(text)
    with pytest.raises(ChapterError, match=says):
        write_chapter(path, edition)
    assert path.read_text() == text


def test_the_message_shows_what_to_put_there(tmp_path: Path) -> None:
    edition, path = lay_out(tmp_path)
    path.write_text(CHAPTER.replace(CELL, ""))
    with pytest.raises(ChapterError) as raised:
        write_chapter(path, edition)
    line = CHAPTER.splitlines().index(":::{exercise} half") + 1
    assert f"{path.name}:{line}: " in str(raised.value)
    assert CELL.strip() in str(raised.value)
