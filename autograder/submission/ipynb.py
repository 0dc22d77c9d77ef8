"""A learner's notebook, read as plain JSON: nothing in it is run, or believed.

Only exercise cells are taken. A cell is one by its metadata, by its id ``ex-<id>``,
or by the comment ``exercise: <id>`` at its head, so that a copy pasted into a fresh
cell is found, and a second one with the same name is noticed.
"""

from __future__ import annotations

import json
import re
import stat
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

# Larger than any notebook with its outputs; a larger file is not read into memory.
LARGEST_FILE = 128 << 20
LARGEST_CELL = 1 << 20

_COMMENT = re.compile(r"^\s*(?:#|//)\s*exercise:\s*([A-Za-z_]\w*)\s*$")
# The same as people rewrite it: capitals, words behind it, another kind of comment.
_REWRITTEN = re.compile(r"^\s*(?:#|//|/\*)\s*exercise:\s*([A-Za-z_]\w*)", re.IGNORECASE)
_HEAD = re.compile(r"^\s*(?:$|#|//|/\*|\*|%%)")
_NEEDS = re.compile(r"#\s*needs:\s*\w+(\s*,\s*\w+)*\s*$")
_ID = re.compile(r"^ex-(\w+)$")


# `make notebooks` never writes over a file that is there.
_MEND = (
    "Move it away: then `make notebooks` writes the untouched one to chapters/, into "
    "which you can put your exercises back."
)


class NotebookError(Exception):
    """A notebook cannot be read; the message says what it is and how to mend it."""


@dataclass
class Notebook:
    """The exercise cells of one notebook.

    Args:
        path: the file.
        cells: each exercise's cells as they stand, usually one.
    """

    path: Path
    cells: dict[str, list[str]] = field(default_factory=dict)


def read_notebook(path: Path) -> Notebook:
    """Read the exercise cells of a notebook.

    Raises:
        NotebookError: it is missing, too large, not JSON or not a notebook.
    """
    document = _load(path)
    cells = document.get("cells")
    if not isinstance(cells, list):
        raise NotebookError(
            f"{path.name}: it is JSON and not a notebook: it has no list of cells. "
            + _MEND
        )
    notebook = Notebook(path)
    for cell in cells:
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = _source(cell)
        if source is not None and (name := exercise_of(cell, source)):
            notebook.cells.setdefault(name, []).append(source)
    return notebook


def exercise_of(cell: dict[str, Any], source: str) -> str | None:
    """Return which exercise a cell answers, or ``None``.

    The comment comes first: it is what the learner sees. A cell that was split in
    two keeps its comment in one half only, while editors copy ids and metadata.
    """
    named = _named(_COMMENT, source)
    if named:
        return named
    metadata = cell.get("metadata")
    own = metadata.get("kernelwright") if isinstance(metadata, dict) else None
    declared = own.get("exercise") if isinstance(own, dict) else None
    if isinstance(declared, str) and declared.isidentifier():
        return declared
    found = _ID.match(cell["id"]) if isinstance(cell.get("id"), str) else None
    return found.group(1) if found else _named(_REWRITTEN, source)


def exercise_in(source: str) -> str | None:
    """Return the exercise that the comment at the head of a cell names."""
    return _named(_COMMENT, source) or _named(_REWRITTEN, source)


def _named(form: re.Pattern[str], source: str) -> str | None:
    """Look for a line of a form in the first four, and above the first of code."""
    lines = source.splitlines()
    head = len([*takewhile(_HEAD.match, lines)])
    for line in lines[: max(4, head)]:
        found = form.match(line)
        if found:
            return found.group(1)
    return None


def needs_in(source: str) -> tuple[str, ...]:
    """Return the exercises that the lines at the head of a cell say it needs."""
    head = takewhile(_NEEDS.match, source.strip().splitlines())
    listed = (line.partition(":")[2] for line in head)
    return tuple(name for names in listed for name in re.findall(r"\w+", names))


def _load(path: Path) -> dict[str, Any]:
    try:
        status = path.stat()
    except OSError as error:
        raise NotebookError(
            f"{path.name}: no such notebook in {path.parent}. `make notebooks` writes "
            "the untouched one to chapters/; SUBMISSION= names another folder or "
            "notebook."
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise NotebookError(f"{path.name}: it is not a file; wanted a notebook.")
    if status.st_size > LARGEST_FILE:
        raise NotebookError(
            f"{path.name}: it is {status.st_size >> 20} MB, more than the "
            f"{LARGEST_FILE >> 20} MB that are read. Clear its outputs and save it."
        )
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise NotebookError(_not_json(path, status.st_size, error)) from error
    except OSError as error:
        raise NotebookError(f"{path.name}: it cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise NotebookError(
            f"{path.name}: it holds JSON and not a notebook (a list or a value; wanted "
            f"an object with cells). {_MEND}"
        )
    return document


def _not_json(path: Path, size: int, error: Exception) -> str:
    mend = f"Save it again from JupyterLab if it is open there. Else: {_MEND}"
    if size == 0:
        return f"{path.name}: the file is empty. {mend}"
    if isinstance(error, json.JSONDecodeError):
        where = f"line {error.lineno}, column {error.colno}"
        if error.pos >= len(error.doc.rstrip()) - 1 or "Unterminated" in error.msg:
            return f"{path.name}: the file is cut off at {where}. {mend}"
        return f"{path.name}: it is not JSON ({error.msg} at {where}). {mend}"
    return f"{path.name}: it is not JSON text. {mend}"


def _source(cell: dict[str, Any]) -> str | None:
    source = cell.get("source")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        return None
    # JSON can hold half a character; no file and no terminal can.
    source = source.encode("utf-8", "replace").decode("utf-8")
    # What an editor puts before a text that it saved; no compiler expects it.
    source = source.removeprefix("\ufeff")
    return source if len(source) <= LARGEST_CELL else source[: LARGEST_CELL + 1]
