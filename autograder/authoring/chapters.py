"""A chapter's Markdown as cells: read, and written back with its stubs.

The format is jupytext's MyST Markdown, as far as the course uses it: one block of
front matter, ``{code-cell}`` fences with a ``:tags:`` line, and ``+++`` where a
Markdown cell is cut by hand. It is read without jupytext, so that a learner's
machine and a GPU box with nothing installed can do it too; a test holds both
readers to the same cells.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autograder.exercise import Exercise

_FENCE = re.compile(r"^(`{3,}|~{3,}|:{3,})(.*)$")
_TAGS = re.compile(r"^:tags:\s*\[(.*)\]\s*$")
_HEADING = re.compile(r"^#{2,3} ")
_EXERCISE = re.compile(r"\A(?:%%\w+[^\n]*\n)?(?://|#) exercise: (\w+)[ \t]*(?:\n|\Z)")


class ChapterError(Exception):
    """A chapter's source is not well formed; the message names file and line."""


@dataclass(frozen=True)
class Cell:
    """One cell of a chapter.

    Args:
        kind: ``markdown`` or ``code``.
        source: its text, without a newline at the end.
        tags: what ``:tags:`` says, such as ``hide-input``.
        line: 1-based line of the source's first line in the chapter.
    """

    kind: Literal["markdown", "code"]
    source: str
    tags: tuple[str, ...] = ()
    line: int = 0

    @property
    def exercise(self) -> str | None:
        """The id of the exercise that this cell is for, or ``None``."""
        return exercise_of(self.source) if self.kind == "code" else None


@dataclass(frozen=True)
class Chapter:
    """A chapter's cells in order; ``path`` is its Markdown."""

    path: Path
    cells: tuple[Cell, ...]

    @property
    def exercises(self) -> tuple[str, ...]:
        """The ids of its exercise cells, in order."""
        return tuple(cell.exercise for cell in self.cells if cell.exercise)


def exercise_of(source: str) -> str | None:
    """Return the exercise that a code cell's first comment names, or ``None``."""
    found = _EXERCISE.match(source.lstrip("\n"))
    return found.group(1) if found else None


def chapter_files(folder: Path) -> list[Path]:
    """Return the chapters' Markdown files (``NN_stem.md``), in order."""
    return sorted(folder.glob("[0-9][0-9]_*.md"))


def read_chapter(path: Path) -> Chapter:
    """Read the chapter at ``path``.

    Raises:
        ChapterError: a fence is not closed, an option is unknown, or an exercise
            has two cells.
    """
    return parse_chapter(path.read_text(encoding="utf-8"), path)


def parse_chapter(text: str, path: Path) -> Chapter:
    """Read a chapter's text; ``path`` is what errors name."""
    lines = text.splitlines()
    cells: list[Cell] = []
    held: list[str] = []
    start = at = _after_front_matter(lines, path)

    def release(upto: int) -> None:
        source = "\n".join(held)
        if source.strip():
            first = start + next(i for i, line in enumerate(held) if line.strip())
            cells.append(Cell("markdown", source.strip("\n"), (), first + 1))
        held.clear()

    while at < len(lines):
        line = lines[at]
        fence = _FENCE.match(line)
        if fence and fence.group(2).strip().startswith("{code-cell}"):
            release(at)
            end = _closing(lines, at, fence.group(1), path)
            cells.append(_code_cell(lines, at, end, path))
            at = start = end + 1
        elif fence:
            end = _closing(lines, at, fence.group(1), path)
            held.extend(lines[at : end + 1])
            at = end + 1
        elif line.rstrip() == "+++":
            release(at)
            at = start = at + 1
        else:
            # A section begins a cell, so that JupyterLab and Colab can fold it.
            if _HEADING.match(line):
                release(at)
                start = at
            held.append(line)
            at += 1
    release(at)
    _refuse_twice(cells, path)
    return Chapter(path, tuple(cells))


def _after_front_matter(lines: list[str], path: Path) -> int:
    if not lines or lines[0].rstrip() != "---":
        raise ChapterError(
            f"{path}:1: a chapter begins with jupytext's front matter between ---"
        )
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() == "---":
            return number + 1
    raise ChapterError(f"{path}:1: the front matter has no closing ---")


def _closing(lines: list[str], at: int, fence: str, path: Path) -> int:
    """Return the index of the line that closes the fence opened at ``at``."""
    for number in range(at + 1, len(lines)):
        line = lines[number].rstrip()
        if len(line) >= len(fence) and line == fence[0] * len(line):
            return number
    raise ChapterError(f"{path}:{at + 1}: this {fence} is never closed")


def _code_cell(lines: list[str], at: int, end: int, path: Path) -> Cell:
    tags: tuple[str, ...] = ()
    first = at + 1
    while first < end and lines[first].startswith(":"):
        found = _TAGS.match(lines[first])
        if found is None:
            raise ChapterError(
                f"{path}:{first + 1}: a code cell takes :tags: [a, b] and no other "
                f"option, got {lines[first]!r}"
            )
        tags = tuple(tag.strip() for tag in found.group(1).split(",") if tag.strip())
        first += 1
    while first < end and not lines[first].strip():
        first += 1
    return Cell("code", "\n".join(lines[first:end]).rstrip("\n"), tags, first + 1)


def _refuse_twice(cells: list[Cell], path: Path) -> None:
    seen: dict[str, int] = {}
    for cell in cells:
        if "exercise" in cell.tags and cell.exercise is None:
            raise ChapterError(
                f"{path}:{cell.line}: a cell tagged exercise begins with %%cuda or "
                "%%cpp and // exercise: ID, or with # exercise: ID"
            )
        if cell.exercise in seen:
            raise ChapterError(
                f"{path}:{cell.line}: the exercise {cell.exercise} already has its "
                f"cell in line {seen[cell.exercise]}"
            )
        if cell.exercise:
            seen[cell.exercise] = cell.line


def with_cells_replaced(
    text: str, path: Path, source_of: Callable[[Cell], str | None]
) -> str:
    """Return the chapter's text with some code cells' sources replaced.

    Args:
        text: the chapter.
        path: what errors name.
        source_of: gives a code cell's new source, or ``None`` to leave it.
    """
    lines = text.splitlines()
    for cell in reversed(parse_chapter(text, path).cells):
        new = source_of(cell) if cell.kind == "code" else None
        if new is None or new == cell.source:
            continue
        first = cell.line - 1
        count = len(cell.source.splitlines())
        lines[first : first + count] = new.splitlines()
    return "\n".join(lines) + "\n"


def stub_in_chapter(exercise: Exercise, folder: Path) -> str:
    """Return the stub that stands in the chapter's own exercise cell.

    Raises:
        ChapterError: no chapter of that stem holds the exercise.
    """
    for path in chapter_files(folder):
        if path.stem.partition("_")[2] != exercise.stem:
            continue
        for cell in read_chapter(path).cells:
            if cell.exercise == exercise.id:
                return cell.source
    raise ChapterError(
        f"{folder}: no chapter NN_{exercise.stem}.md holds a cell that begins with "
        f"exercise: {exercise.id}"
    )
