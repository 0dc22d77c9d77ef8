"""MyST directives and roles into plain Markdown for JupyterLab and Colab.

Every directive that a chapter uses has its plain form here; one that has none is an
error, so that no meaning is lost without a word.
"""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autograder.authoring import box, results
from autograder.authoring.chapters import ChapterError
from autograder.exercise import Exercise
from kernelwright.cache import digest
from kernelwright.draw import bars

_OPENING = re.compile(r"^(:{3,}|`{3,})\{([\w-]+)\}\s*(.*?)\s*$")
_FENCE = re.compile(r"^(`{3,}|~{3,})")
_OPTION = re.compile(r"^:([\w-]+):\s*(.*?)\s*$")
_ROLE = re.compile(r"\{([\w-]+)\}`([^`]+)`")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s:#]+\.md)(#[\w-]+)?\)")
_TITLED = re.compile(r"^(.*?)\s*<([^>]+)>$", re.DOTALL)

_LABELS = {
    "note": "Note",
    "tip": "Tip",
    "important": "Important",
    "warning": "Warning",
    "questions": "Before you go on",
}


@dataclass
class Setting:
    """What the plain form of a chapter is made with.

    Args:
        chapter: the chapter's path, that images are relative to.
        exercises: the declarations, by id.
        results: the folder of stored measurements.
        repository: address of the course's repository, for links.
        attachments: filled with the images that a cell shows, by name.
    """

    chapter: Path
    exercises: Mapping[str, Exercise]
    results: Path
    repository: str
    attachments: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Directive:
    """One directive as it stands in the source."""

    name: str
    argument: str
    options: Mapping[str, str]
    body: str
    line: int


def plain(text: str, setting: Setting, line: int = 1) -> str:
    """Return a Markdown cell's text with nothing in it that only MyST knows.

    Args:
        text: the cell.
        setting: what it is made with; images are added to its attachments.
        line: where the cell begins in the chapter, for errors.
    """
    out: list[str] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        opening = _OPENING.match(lines[at])
        if opening:
            found, at = _directive(lines, at, line, setting)
            out += ["", *_plain_directive(found, setting).splitlines(), ""]
        elif fence := _FENCE.match(lines[at]):
            end = _closing(lines, at, fence.group(1))
            out += lines[at : end + 1]
            at = end + 1
        else:
            out.append(_inline(lines[at], setting, line + at))
            at += 1
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip("\n")


def _directive(
    lines: list[str], at: int, line: int, setting: Setting
) -> tuple[Directive, int]:
    opening = _OPENING.match(lines[at])
    assert opening is not None
    fence, name, argument = opening.groups()
    end = _closing(lines, at, fence)
    options: dict[str, str] = {}
    first = at + 1
    while first < end and (option := _OPTION.match(lines[first])):
        options[option.group(1)] = option.group(2)
        first += 1
    body = "\n".join(lines[first:end]).strip("\n")
    return Directive(name, argument, options, body, line + at), end + 1


def _closing(lines: list[str], at: int, fence: str) -> int:
    for number in range(at + 1, len(lines)):
        line = lines[number].rstrip()
        if len(line) >= len(fence) and line == fence[0] * len(line):
            return number
    return len(lines)


def _plain_directive(found: Directive, setting: Setting) -> str:
    where = f"{setting.chapter}:{found.line}"
    if found.name in _LABELS or found.name == "admonition":
        label = _LABELS.get(found.name) or found.argument
        first = "" if found.name == "admonition" else found.argument
        text = plain("\n".join(filter(None, [first, found.body])), setting, found.line)
        return box.quoted(f"**{label}**\n\n{text}")
    form = _FORMS.get(found.name)
    if form is None:
        known = ", ".join(sorted([*_FORMS, *_LABELS, "admonition"]))
        raise ChapterError(
            f"{where}: {{{found.name}}} has no plain form; a chapter may use {known}"
        )
    try:
        return form(found, setting)
    except results.ResultsError as error:
        raise ChapterError(f"{where}: {error}") from None


def declared(exercise_id: str, setting: Setting, line: int) -> Exercise:
    """Return the declaration of an exercise that a chapter names.

    Raises:
        ChapterError: there is no such exercise.
    """
    if exercise_id not in setting.exercises:
        raise ChapterError(
            f"{setting.chapter}:{line}: no exercise is declared as {exercise_id!r}: "
            "EXERCISES in its chapter's __init__.py has none of that id"
        )
    return setting.exercises[exercise_id]


def _exercise(found: Directive, setting: Setting) -> str:
    return box.for_notebook(declared(found.argument, setting, found.line))


def _nothing(found: Directive, setting: Setting) -> str:
    declared(found.argument, setting, found.line)
    return ""


def _dropdown(found: Directive, setting: Setting) -> str:
    text = plain(found.body, setting, found.line)
    head = f"<details><summary><b>{found.argument}</b></summary>"
    return f"{head}\n\n{text}\n\n</details>"


def _math(found: Directive, setting: Setting) -> str:
    return f"$$\n{found.body}\n$$"


def _results(found: Directive, setting: Setting) -> str:
    rows = results.names(found.options.get("rows", ""))
    columns = results.parse_columns(found.options.get("columns", ""))
    table = results.table(found.argument, rows, columns, setting.results).markdown()
    plot = results.plot(found.argument, found.options, setting.results)
    if plot is None:
        return table
    heading, shares = plot
    svg = bars.bars(shares, heading, ground=True).encode()
    # JupyterLab shows no SVG that is attached. By reference, and behind the table: the
    # cell can still be read where it is edited.
    name = f"plot-{digest(svg)[:8]}"
    data = base64.b64encode(svg).decode()
    image = f"![{bars.words(shares)}][{name}]"
    return f"{image}\n\n{table}\n\n[{name}]: <data:image/svg+xml;base64,{data}>"


def _figure(found: Directive, setting: Setting) -> str:
    path = setting.chapter.parent / found.argument
    where = f"{setting.chapter}:{found.line}"
    if not path.exists():
        raise ChapterError(f"{where}: there is no figure at {found.argument}")
    if not found.options.get("alt"):
        raise ChapterError(f"{where}: a figure says what it shows: give it :alt:")
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    data = base64.b64encode(path.read_bytes()).decode()
    setting.attachments[path.name] = {kind: data}
    caption = plain(found.body, setting, found.line).replace("\n", " ")
    image = f"![{found.options['alt']}](attachment:{path.name})"
    return f"{image}\n\n*{caption}*" if caption else image


_FORMS: dict[str, Callable[[Directive, Setting], str]] = {
    "exercise": _exercise,
    "hints": _nothing,
    "solution": _nothing,
    "dropdown": _dropdown,
    "math": _math,
    "results": _results,
    "figure": _figure,
}


def _inline(line: str, setting: Setting, number: int) -> str:
    def role(match: re.Match[str]) -> str:
        name, text = match.groups()
        if name == "term":
            titled = _TITLED.match(text)
            return titled.group(1) if titled else text
        if name == "math":
            return f"${text}$"
        if name == "result":
            try:
                return results.value(text, setting.results)
            except results.ResultsError as error:
                raise ChapterError(f"{setting.chapter}:{number}: {error}") from None
        raise ChapterError(f"{setting.chapter}:{number}: {{{name}}} has no plain form")

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        if "/" not in target:
            return f"[{text}]({target.removesuffix('.md')}.ipynb{anchor or ''})"
        path = (setting.chapter.parent / target).resolve()
        root = setting.chapter.parent.resolve().parent
        try:
            page = path.relative_to(root).as_posix()
        except ValueError:
            raise ChapterError(
                f"{setting.chapter}:{number}: the link to {target} leaves the course"
            ) from None
        return f"[{text}]({setting.repository}/blob/main/{page}{anchor or ''})"

    return _LINK.sub(link, _ROLE.sub(role, line))
