"""The grade in a terminal: live progress, then a table by chapter.

rich draws it where it is installed; nothing is lost where it is not.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator
from itertools import groupby
from typing import TextIO

from autograder.judge.results import Record, Result
from autograder.judge.words import clean
from autograder.report.points import MARKS, UNTRIED, correct_words, out_of, part_words

_COLOURS = {
    "passed": "green",
    "failed": "red",
    "timeout": "yellow",
    "crashed": "red",
    "infrastructure error": "magenta",
}
_HEADINGS = ("Exercise", "Result", "Counts", "Speed", "Points")


class Progress:
    """Says what is being done: one line that changes, or lines in a file.

    Args:
        total: how many exercises there are.
        stream: where it is written.
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total = total
        self.stream = stream or sys.stdout
        self.live = self.stream.isatty()
        self.done = 0
        self.name = ""
        self._last = 0.0

    def begin(self, name: str) -> None:
        """Say that an exercise is begun."""
        self.name = name
        self.step("starting")

    def step(self, what: str) -> None:
        """Say what is done with it now."""
        if not self.live or time.monotonic() - self._last < 0.05:
            return
        self._last = time.monotonic()
        line = f"[{self.done + 1}/{self.total}] {self.name}: {what}"
        self._rewrite(line)

    def end(self, result: Result) -> None:
        """Say what came of it."""
        self.done += 1
        if self.live:
            self._rewrite("")
        line = (
            f"[{self.done}/{self.total}] {MARKS[result.status]} "
            f"{result.exercise}: {result.words} "
            f"({out_of(result.earned, result.possible, result.points)}, "
            f"{result.seconds:.1f} s)"
        )
        self._write(line + "\n")

    def _rewrite(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._write("\r\x1b[2K" + line[:width])

    def _write(self, text: str) -> None:
        # Whoever read along may have gone: what is graded is written to files.
        with contextlib.suppress(OSError):
            self.stream.write(text)
            self.stream.flush()


def print_record(record: Record, stream: TextIO | None = None) -> None:
    """Print the table, what is wrong with each answer, and the sum."""
    out = stream or sys.stdout
    try:
        from rich.console import Console
    except ImportError:
        out.write(plain_table(record))
    else:
        _rich_table(record, Console(file=out, highlight=False))
    out.write(_messages(record))
    # Said here and in grade.json alone: a report may be a student's to read.
    seed = f"Seed: {record.seed} (SEED={record.seed} grades the same again)"
    points, *more = summary(record)
    out.write("\n".join([points, seed, *more]) + "\n")
    out.flush()


def rows(results: list[Result]) -> Iterator[tuple[str, ...]]:
    """Give the rows of one chapter."""
    for result in results:
        yield (
            result.exercise,
            f"{MARKS[result.status]} {correct_words(result)}",
            part_words(result, "counts"),
            part_words(result, "speed"),
            out_of(result.earned, result.possible, result.possible),
        )


def chapters(record: Record) -> Iterator[tuple[str, list[Result]]]:
    """Give the results by chapter, in the order of the course."""
    for stem, group in groupby(record.results, key=lambda result: result.stem):
        yield stem, list(group)


def plain_table(record: Record) -> str:
    """Draw the table with nothing but text."""
    lines: list[str] = [""]
    every = [_HEADINGS, *(row for _, rs in chapters(record) for row in rows(rs))]
    widths = [max(len(row[i]) for row in every) for i in range(len(_HEADINGS))]

    def line(row: tuple[str, ...]) -> str:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        return "  ".join(cells).rstrip()

    for stem, results in chapters(record):
        lines += [stem, line(_HEADINGS), line(tuple("-" * w for w in widths))]
        lines += [line(row) for row in rows(results)]
        lines.append("")
    return "\n".join(lines) + "\n"


def summary(record: Record) -> list[str]:
    """Say the sum and where it was graded; never the seed, which a class may keep."""
    points = out_of(record.earned, record.possible, record.points)
    lines = [f"Points: {points}"]
    if record.possible != record.points:
        lines.append(
            "What was not measured or not checked earns nothing and takes nothing away."
        )
    lines.append(f"Device: {clean(record.device)}")
    lines.append(f"Sandbox: {record.sandbox['words']}")
    lines += [f"Note: {clean(note)}" for note in record.notes]
    stubs = [r.exercise for r in record.results if r.words == "not attempted"]
    if stubs and all(r.words in UNTRIED for r in record.results):
        lines.append(
            f"Nothing is solved yet. Start with `make lab`: {stubs[0]} is the first."
        )
    return lines


def _messages(record: Record) -> str:
    width = min(100, shutil.get_terminal_size().columns)
    lines: list[str] = []
    for result in record.results:
        if result.status == "passed" or result.words == "not attempted":
            continue
        lines.append(f"{MARKS[result.status]} {result.exercise}")
        for part in clean(f"{result.note}\n{result.message}").splitlines()[:12]:
            lines += textwrap.wrap(
                part, width, initial_indent="    ", subsequent_indent="    "
            )
    return "\n".join([*lines, "", ""]) if lines else ""


def _rich_table(record: Record, console: object) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    assert isinstance(console, Console)
    for stem, results in chapters(record):
        table = Table(title=stem, title_justify="left", title_style="bold")
        for heading in _HEADINGS:
            right = heading == "Points"
            # An exercise's id is typed again (ONLY=): it is never broken in two.
            whole = heading in ("Exercise", "Points")
            table.add_column(
                heading,
                justify="right" if right else "left",
                no_wrap=whole,
                overflow="fold",
            )
        for result, row in zip(results, rows(results), strict=True):
            # Text, not markup: a name in brackets must not be read as a style.
            colour = "dim" if row[1].endswith("not attempted") else ""
            cells = [Text(cell, style=colour) for cell in row]
            cells[1].stylize(colour or _COLOURS[result.status])
            table.add_row(*cells)
        console.print()
        console.print(table)
    console.print()
