"""Marked regions: exercise, stub and answer as one text.

A file of solutions marks what an exercise shows, and inside it what the learner
fills in::

    // [exercise:vector_add]
    __global__ void vector_add(const float* x, float* out, int n) {
        // [hole]
        out[threadIdx.x] = x[threadIdx.x];
        // [/hole]
    }
    // [/exercise]

The answer is the region without its markers; the stub has one comment in place of
each hole. A detective's hole may hold the broken code that the learner is given,
commented out between ``[broken]`` and ``[/broken]``: then the stub is that code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from autograder.exercise import Exercise, Language
from autograder.languages import SYNTAX

ROOT = Path(__file__).resolve().parents[1]
"""The root of the checkout: what an exercise's ``source`` is relative to."""

_MARKER = re.compile(r"^(\s*)(//|#)\s*\[(/?)(exercise|hole|broken)(?::(\w+))?\]\s*$")
# Anything that was meant as a marker and is not one must not pass as a comment.
_ALMOST = re.compile(r"^\s*(//|#)\s*\[/?\s*(exercise|hole|broken)\b", re.IGNORECASE)
_COMMENTED = re.compile(r"^(\s*)(?://|#)(?: (.*))?$")
_LANGUAGES: dict[str, Language] = {
    ending: language for language, s in SYNTAX.items() for ending in s.endings
}


class RegionError(Exception):
    """A marked region is not well formed, or is not there."""


@dataclass(frozen=True)
class Region:
    """One exercise's text, solved and as the learner gets it.

    Args:
        id: the exercise.
        language: from the file's ending.
        text_solved: the whole region without its markers, no newline at the end.
        text_stub: the region with its holes empty (or broken, for a detective).
        path: the file that holds it.
        first_line: 1-based line of the region's first line of text in that file.
        filled: from where to where in ``text_solved`` each hole's answer stands.
    """

    id: str
    language: Language
    text_solved: str
    text_stub: str
    path: Path
    first_line: int
    filled: tuple[tuple[int, int], ...] = ()


@dataclass
class _Hole:
    """A hole while it is read: where it stands, its answer, its broken form."""

    line: int
    indent: str
    answer: list[str] = field(default_factory=list)
    broken: list[str] | None = None


@dataclass
class _Open:
    """A region while it is read: lines of text, with holes between them."""

    id: str
    line: int
    parts: list[str | _Hole] = field(default_factory=list)

    def holes(self) -> list[_Hole]:
        return [part for part in self.parts if isinstance(part, _Hole)]


class _Reader:
    """Reads a file line by line; every complaint names the file and the line."""

    def __init__(self, path: Path, language: Language) -> None:
        self.path = path
        self.language = language
        self.regions: dict[str, Region] = {}
        self.region: _Open | None = None
        self.hole: _Hole | None = None
        self.in_broken = False

    def fail(self, line: int, message: str) -> RegionError:
        return RegionError(f"{self.path}:{line}: {message}")

    def read(self, text: str) -> dict[str, Region]:
        lines = text.splitlines()
        for number, line in enumerate(lines, start=1):
            marker = _MARKER.match(line)
            if marker is None:
                self._text(number, line)
                continue
            indent, sign, slash, kind, name = marker.groups()
            if sign != self._sign():
                raise self.fail(number, f"a marker here begins with {self._sign()}")
            if name and (slash or kind != "exercise"):
                raise self.fail(number, f"[{slash}{kind}] takes no name")
            self._marker(number, kind, bool(slash), indent, name)
        if self.region is not None:
            raise self.fail(
                self.region.line,
                f"[exercise:{self.region.id}] has no [/exercise] before the end",
            )
        return self.regions

    def _sign(self) -> str:
        return SYNTAX[self.language].comment

    def _text(self, number: int, line: str) -> None:
        if _ALMOST.match(line):
            raise self.fail(number, f"this is not a marker: {line.strip()!r}")
        if self.region is None:
            return
        if self.hole is None:
            self.region.parts.append(line)
        elif self.in_broken:
            assert self.hole.broken is not None
            self.hole.broken.append(self._uncommented(number, line))
        else:
            self.hole.answer.append(line)

    def _uncommented(self, number: int, line: str) -> str:
        if not line.strip():
            return ""
        found = _COMMENTED.match(line)
        if found is None:
            raise self.fail(
                number,
                f"a line of [broken] begins with {self._sign()} and one blank",
            )
        indent, rest = found.groups()
        return f"{indent}{rest}" if rest else ""

    def _marker(
        self, number: int, kind: str, closes: bool, indent: str, name: str | None
    ) -> None:
        if kind == "exercise":
            self._close_region(number) if closes else self._open_region(number, name)
        elif self.region is None:
            raise self.fail(number, f"[{kind}] stands outside any [exercise:...]")
        elif kind == "hole":
            self._close_hole(number) if closes else self._open_hole(number, indent)
        else:
            self._broken(number, closes)

    def _open_region(self, number: int, name: str | None) -> None:
        if name is None:
            raise self.fail(number, "[exercise] needs its id: [exercise:vector_add]")
        if self.region is not None:
            raise self.fail(
                number,
                f"[exercise:{name}] begins inside [exercise:{self.region.id}] "
                f"of line {self.region.line}",
            )
        if name in self.regions:
            raise self.fail(number, f"[exercise:{name}] is in this file twice")
        self.region = _Open(name, number)

    def _open_hole(self, number: int, indent: str) -> None:
        if self.hole is not None:
            raise self.fail(number, f"[hole] inside the hole of line {self.hole.line}")
        assert self.region is not None
        self.hole = _Hole(number, indent)
        self.region.parts.append(self.hole)

    def _close_hole(self, number: int) -> None:
        if self.hole is None:
            raise self.fail(number, "[/hole] without a [hole]")
        if self.in_broken:
            raise self.fail(number, "[/hole] before [/broken]")
        if not any(line.strip() for line in self.hole.answer):
            raise self.fail(self.hole.line, "this hole has no answer in it")
        self.hole = None

    def _broken(self, number: int, closes: bool) -> None:
        if self.hole is None:
            raise self.fail(number, "[broken] belongs inside a [hole]")
        if closes and not self.in_broken:
            raise self.fail(number, "[/broken] without a [broken]")
        if not closes and self.hole.broken is not None:
            raise self.fail(number, "a hole has one [broken] form")
        if not closes:
            self.hole.broken = []
        self.in_broken = not closes

    def _close_region(self, number: int) -> None:
        region = self.region
        if region is None:
            raise self.fail(number, "[/exercise] without an [exercise:...]")
        if self.hole is not None:
            raise self.fail(self.hole.line, "this [hole] has no [/hole]")
        if not region.holes():
            raise self.fail(region.line, f"[exercise:{region.id}] has no [hole]")
        self.regions[region.id] = Region(
            id=region.id,
            language=self.language,
            text_solved=_joined(region, lambda hole: hole.answer),
            text_stub=self._stub(region),
            path=self.path,
            first_line=region.line + 1,
            filled=tuple(_filled(region)),
        )
        self.region = None

    def _stub(self, region: _Open) -> str:
        empty = (
            self._empty_bodies(region)
            if self.language == "python"
            else dict[int, str]()
        )

        def stand_in(hole: _Hole) -> list[str]:
            if hole.broken is not None:
                return hole.broken
            line = f"{hole.indent}{self._sign()} {_fill_me_in(hole, self._sign())}"
            body = empty.get(hole.line)
            return [line, f"{hole.indent}{body}"] if body else [line]

        return _joined(region, stand_in)

    def _empty_bodies(self, region: _Open) -> dict[int, str]:
        """Find the holes whose block would be empty, and what must stand there.

        Python has no empty block. A function says that it is not written yet; a
        Triton kernel, which is compiled and cannot raise, does nothing.
        """
        lines: list[str] = []
        placed: dict[int, int] = {}
        for part in region.parts:
            if isinstance(part, str):
                lines.append(part)
            else:
                if part.broken is None:
                    placed[len(lines) + 1] = part.line
                    lines.append(f"{part.indent}pass")
                else:
                    lines.extend(part.broken)
        try:
            tree = ast.parse("\n".join(lines))
        except SyntaxError as error:
            raise self.fail(
                region.line + (error.lineno or 0),
                f"[exercise:{region.id}] is not Python once its holes are empty "
                f"({error.msg}); a hole stands where a statement may",
            ) from None
        return dict(_bodies_without_code(tree, placed))


def _bodies_without_code(
    tree: ast.AST, placed: dict[int, int], jitted: bool = False
) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    if isinstance(tree, ast.FunctionDef):
        jitted = any("jit" in ast.unparse(mark) for mark in tree.decorator_list)
    for name in ("body", "orelse", "finalbody"):
        block = getattr(tree, name, None)
        if not isinstance(block, list):
            continue
        holes = [n for n in block if isinstance(n, ast.Pass) and n.lineno in placed]
        others = [n for n in block if n not in holes and not _is_docstring(n)]
        if holes and not others and not isinstance(tree, ast.Module):
            body = "pass" if jitted else "raise NotImplementedError"
            found.append((placed[holes[0].lineno], body))
    for child in ast.iter_child_nodes(tree):
        found += _bodies_without_code(child, placed, jitted)
    return found


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _fill_me_in(hole: _Hole, sign: str) -> str:
    count = sum(
        1 for line in hole.answer if line.strip() and not line.strip().startswith(sign)
    )
    return f"fill me in (about {count} line{'' if count == 1 else 's'})"


def _joined(region: _Open, stand_in: Callable[[_Hole], list[str]]) -> str:
    lines: list[str] = []
    for part in region.parts:
        lines += stand_in(part) if isinstance(part, _Hole) else [part]
    return "\n".join(lines).strip("\n")


def _filled(region: _Open) -> Iterator[tuple[int, int]]:
    """Give where the answers stand in the solved text."""
    solved = [
        part.answer if isinstance(part, _Hole) else [part] for part in region.parts
    ]
    joined = "\n".join(line for lines in solved for line in lines)
    at = len(joined.strip("\n")) - len(joined.rstrip("\n"))
    for part, lines in zip(region.parts, solved, strict=True):
        size = sum(len(line) + 1 for line in lines)
        if isinstance(part, _Hole):
            yield max(at, 0), at + size - 1
        at += size


def parse_regions(text: str, path: Path) -> dict[str, Region]:
    """Return the regions of a file's text, by exercise, in their order.

    Raises:
        RegionError: a marker is wrong; the message names file, line and mend.
    """
    language = _LANGUAGES.get(path.suffix)
    if language is None:
        raise RegionError(
            f"{path}: regions are read from {', '.join(_LANGUAGES)} files"
        )
    return _Reader(path, language).read(text)


@cache
def _regions_at(path: Path, modified_ns: int) -> dict[str, Region]:
    return parse_regions(path.read_text(encoding="utf-8"), path)


def regions_of(path: Path) -> dict[str, Region]:
    """Return the regions of the file at ``path``, by exercise, in their order."""
    try:
        return _regions_at(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        raise RegionError(
            f"{path}: no such file; the student edition has no solutions"
        ) from None


def read_region(path: Path, exercise_id: str) -> Region:
    """Return the region of one exercise in the file at ``path``."""
    regions = regions_of(path)
    if exercise_id not in regions:
        there = ", ".join(regions) or "none"
        raise RegionError(
            f"{path}: no [exercise:{exercise_id}] here; there is: {there}"
        )
    return regions[exercise_id]


def cell_heading(language: Language, exercise_id: str) -> str:
    """Return the lines that an exercise cell begins with."""
    return SYNTAX[language].heading(exercise_id)


def cell_source(exercise: Exercise, solved: bool, root: Path = ROOT) -> str:
    """Return the whole exercise cell: its heading, then the stub or the answer.

    Without the file of solutions (the student edition) the stub is the one that
    stands in the chapter.

    Raises:
        RegionError: the region is malformed or missing, or ``solved`` was asked
            of an edition that holds no answers.
    """
    path = root / exercise.source
    if not solved and not path.exists():
        from autograder.authoring.chapters import stub_in_chapter

        return stub_in_chapter(exercise, root / "chapters")
    region = read_region(path, exercise.id)
    if region.language != exercise.language:
        raise RegionError(
            f"{path}: the exercise {exercise.id} is declared as {exercise.language}, "
            f"its region is {region.language}"
        )
    text = region.text_solved if solved else region.text_stub
    return cell_heading(exercise.language, exercise.id) + text
