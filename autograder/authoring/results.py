"""Stored measurements as tables and as words; what is not there says so.

A file ``benchmarks/results/<name>.json`` holds one run: ``device``, ``date``,
``versions``, ``command`` and ``rows``, each row with its ``name``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.draw.bars import Bar

MISSING = "not measured"
NO_ROOM = "out of memory"
ABSENT = (MISSING, NO_ROOM)
"""What stands in the place of a value."""


class ResultsError(Exception):
    """A results file is not readable, or was asked for in a wrong way."""


@dataclass(frozen=True)
class Column:
    """One column of a table: the key of a row, its format, the heading."""

    key: str
    format: str
    heading: str


@dataclass(frozen=True)
class Table:
    """A table ready to be set; a cell without a value says why, in ``ABSENT``."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    source: str

    def markdown(self) -> str:
        """Return the table as plain Markdown, its source in a line below."""
        lines = ["| " + " | ".join(self.headings) + " |"]
        marks = [":---"] + ["---:"] * (len(self.headings) - 1)
        lines.append("| " + " | ".join(marks) + " |")
        for row in self.rows:
            cells = (f"*{cell}*" if cell in ABSENT else cell for cell in row)
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join([*lines, "", f"*{self.source}*"])


def load_results(name: str, folder: Path) -> dict[str, Any] | None:
    """Return the stored run ``name``, or ``None`` where none was stored."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ResultsError(f"{path}: not JSON: {error}") from None
    if not isinstance(stored, dict) or not isinstance(stored.get("rows"), list):
        raise ResultsError(f"{path}: wants an object with a list of rows")
    return stored


def parse_columns(text: str) -> tuple[Column, ...]:
    """Read ``key:format=Heading | key=Heading``; the format may be left out."""
    columns = []
    for part in text.split("|"):
        left, equals, heading = part.partition("=")
        key, _, form = left.strip().partition(":")
        if not key or not equals:
            raise ResultsError(
                f"a column is key=Heading or key:format=Heading, got {part.strip()!r}"
            )
        columns.append(Column(key.strip(), form.strip(), heading.strip()))
    return tuple(columns)


def parse_column(text: str) -> Column:
    """Read one ``key:format=Heading``."""
    columns = parse_columns(text)
    if len(columns) != 1:
        raise ResultsError(f"a plot shows one column, got {len(columns)}: {text!r}")
    return columns[0]


def table(
    name: str, row_names: Sequence[str], columns: Sequence[Column], folder: Path
) -> Table:
    """Return the table of the named rows, whether or not they were measured.

    Args:
        name: which stored run.
        row_names: the rows to show, in order; none means all that are stored.
        columns: what to show of each.
        folder: where the results are stored.
    """
    stored = load_results(name, folder)
    rows = []
    for row_name, row in _chosen(stored, row_names):
        lacks = NO_ROOM if _had_no_room(row) else MISSING
        cells = [_formatted(row.get(c.key), c.format, lacks) for c in columns]
        # A row keeps its name even where nothing of it was measured.
        if columns and columns[0].key not in row:
            cells[0] = row_name.replace("_", " ")
        rows.append(tuple(cells))
    return Table(tuple(c.heading for c in columns), tuple(rows), provenance(stored))


def plot(
    name: str, options: Mapping[str, str], folder: Path
) -> tuple[str, list[Bar]] | None:
    """Return the heading and the bars of the plot that a table's options ask for.

    Args:
        name: which stored run.
        options: ``plot``, the column whose values are drawn, 1 being the line that they
            are held against; ``plot-rows``, where not all ``rows`` are; ``peers``,
            those of them that are somebody else's kernels.
        folder: where the results are stored.

    Returns:
        None where no plot is asked for, or nothing of it was measured.
    """
    if "plot" not in options:
        return None
    column = parse_column(options["plot"])
    row_names = names(options.get("plot-rows", options.get("rows", "")))
    peers = names(options.get("peers", ""))
    made = []
    for row_name, row in _chosen(load_results(name, folder), row_names):
        label = str(row.get("label", row_name.replace("_", " "))).replace("`", "")
        value = row.get(column.key)
        if not isinstance(value, int | float | None):
            raise ResultsError(f"{name}: {column.key} is {value!r}: no bar shows that")
        said = _formatted(value, column.format)
        made.append(Bar(label, value, said, peer=row_name in peers))
    measured = any(bar.value is not None for bar in made)
    return (column.heading, made) if measured else None


def _chosen(
    stored: dict[str, Any] | None, row_names: Sequence[str]
) -> list[tuple[str, dict[str, Any]]]:
    """Return the named rows, or all; one that was not measured is empty."""
    found = {str(row.get("name")): row for row in stored["rows"]} if stored else {}
    return [(name, found.get(name, {})) for name in row_names or found]


def names(text: str) -> list[str]:
    """Read names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def provenance(stored: dict[str, Any] | None) -> str:
    """Return one line: on what device, with what versions, when."""
    if stored is None:
        return "Not measured yet: no result is stored."
    versions = stored.get("versions") or {}
    with_what = ", ".join(f"{name} {version}" for name, version in versions.items())
    parts = [f"Measured on {stored.get('device', 'a machine without a name')}"]
    if with_what:
        parts.append(f"with {with_what}")
    if stored.get("date"):
        parts.append(f"on {stored['date']}")
    return ", ".join(parts) + "."


def value(reference: str, folder: Path) -> str:
    """Return one stored value as text: ``name/row/key`` or ``name/row/key:format``.

    The row ``meta`` stands for the run's own keys, such as its device.
    """
    path, _, form = reference.partition(":")
    parts = path.strip().split("/")
    if len(parts) < 3:
        raise ResultsError(f"a result is file/row/key, got {reference!r}")
    name, row_name, *keys = parts
    stored = load_results(name, folder)
    if stored is None:
        return MISSING
    found: Any = stored
    if row_name != "meta":
        named = [row for row in stored["rows"] if row.get("name") == row_name]
        found = named[0] if named else None
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return _formatted(found, form.strip())


def _had_no_room(row: Mapping[str, Any]) -> bool:
    """Say whether a row was tried, and memory did not suffice."""
    return bool(row.get("out_of_memory")) or NO_ROOM in str(row.get("failed", ""))


def _formatted(found: Any, form: str, lacks: str = MISSING) -> str:
    if found is None:
        return lacks
    try:
        return format(found, form) if form else str(found)
    except ValueError:
        raise ResultsError(f"{found!r} has no format {form!r}") from None
