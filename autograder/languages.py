"""How each language of an exercise is written, in a cell and in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from tokenize import COMMENT, TokenError, generate_tokens
from typing import Final

from autograder.exercise import Language
from kernelwright.emulator.source import mask


@dataclass(frozen=True)
class Syntax:
    """How a language is written.

    Args:
        title: its name, for a reader.
        comment: what a comment begins with.
        endings: of the files that hold it; the first is that of a new one.
        magic: the line that a notebook's cell begins with; '' for Python.
    """

    title: str
    comment: str
    endings: tuple[str, ...]
    magic: str = ""

    def line(self, exercise_id: str) -> str:
        """Return the line by which a cell says whose answer it is."""
        return f"{self.comment} exercise: {exercise_id}"

    def heading(self, exercise_id: str) -> str:
        """Return the lines that an exercise's cell begins with."""
        lines = [self.magic] * bool(self.magic) + [self.line(exercise_id)]
        return "".join(f"{line}\n" for line in lines)


SYNTAX: Final[Mapping[Language, Syntax]] = {
    "cuda": Syntax("CUDA C++", "//", (".cu", ".cuh"), "%%cuda"),
    "cpp": Syntax("C++", "//", (".cpp",), "%%cpp"),
    "python": Syntax("Python", "#", (".py",)),
}
MAGICS: Final = tuple(syntax.magic for syntax in SYNTAX.values() if syntax.magic)


def language_of(source: str) -> Language:
    """Return the language that a cell's first line names; Python where none."""
    first = source.lstrip()
    for language, syntax in SYNTAX.items():
        if syntax.magic and first.startswith(syntax.magic):
            return language
    return "python"


def code_of(source: str) -> str:
    """Return a cell's text with its magic line blanked: lines keep their numbers."""
    lines = source.split("\n")
    for number, line in enumerate(lines):
        if line.strip():
            if line.lstrip().startswith(MAGICS):
                lines[number] = ""
            break
    # As the notebook's magic hands it over: one text, one place in the cache.
    text = "\n".join(lines)
    return text if text.endswith("\n") else text + "\n"


def code_alone(source: str, language: Language) -> str:
    """Return a cell's text with its comments blanked."""
    if language != "python":
        return mask(source)
    lines = source.splitlines(keepends=True)
    try:
        found = [t for t in generate_tokens(iter(lines).__next__) if t.type == COMMENT]
    except (SyntaxError, TokenError):
        return source
    for token in found:
        row, column = token.start
        lines[row - 1] = lines[row - 1][:column] + "\n"
    return "".join(lines)
