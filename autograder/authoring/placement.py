"""Each exercise of a chapter has its box and, below it, the cell that is graded."""

from __future__ import annotations

import re
from collections.abc import Mapping

from autograder.authoring.chapters import Chapter, ChapterError
from autograder.exercise import Exercise
from autograder.regions import cell_heading
from autograder.submission.ipynb import needs_in

_BOX = re.compile(r"^(?::{3,}|`{3,})\{exercise\}[ \t]*(\w+)", re.M)


def refuse_misplaced(chapter: Chapter, exercises: Mapping[str, Exercise]) -> None:
    """Refuse a chapter that lacks a box or a cell of an exercise.

    Args:
        chapter: with its cells.
        exercises: those of the course, by id.

    Raises:
        ChapterError: an exercise has no box, or no cell below it, or the cell no tag;
            or a cell needs an exercise whose cell is not above it.
    """
    boxes: dict[str, int] = {}
    for cell in chapter.cells:
        if cell.kind == "markdown":
            for found in _BOX.finditer(cell.source):
                boxes[found[1]] = cell.line + cell.source.count("\n", 0, found.start())
        elif cell.exercise is not None:
            where = f"{chapter.path}:{cell.line}"
            if cell.exercise not in boxes:
                raise ChapterError(
                    f"{where}: the cell of {cell.exercise} has no box above it: put "
                    f":::{{exercise}} {cell.exercise} and ::: there"
                )
            if "exercise" not in cell.tags:
                raise ChapterError(
                    f"{where}: the cell of {cell.exercise} wants :tags: [exercise] in "
                    "the line below its {code-cell}"
                )
    stem = chapter.path.stem.partition("_")[2]
    declared = (one.id for one in exercises.values() if one.stem == stem)
    for name in [*boxes, *(one for one in declared if one not in boxes)]:
        if name in chapter.exercises or name not in exercises:
            continue
        line = f":{boxes[name]}" if name in boxes else ""
        what = "box of {} has no cell below it" if line else "exercise {} has no place"
        box = "" if line else f":::{{exercise}} {name}\n:::\n\n"
        heading = cell_heading(exercises[name].language, name)
        raise ChapterError(
            f"{chapter.path}{line}: the {what.format(name)}. Wanted, and `make "
            f"notebooks` fills in the stub:\n\n{box}```{{code-cell}} ipython3\n"
            f":tags: [exercise]\n{heading}```\n\n```{{code-cell}} ipython3\n"
            f'check("{name}")\n```'
        )
    _refuse_early(chapter)


def _refuse_early(chapter: Chapter) -> None:
    """Refuse a cell that stands above an exercise that it needs."""
    above: set[str | None] = set()
    for cell in chapter.cells:
        above.add(cell.exercise)
        for name in needs_in(cell.source) if cell.kind == "code" else ():
            if name not in above:
                raise ChapterError(
                    f"{chapter.path}:{cell.line}: the cell needs {name}, of which no "
                    "cell stands above it. Move it below that exercise, or mend the id"
                )
