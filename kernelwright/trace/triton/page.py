"""A Triton trace as HTML: the kernel's source with a margin of figures."""

from __future__ import annotations

import html
from collections import defaultdict
from pathlib import PurePath

from kernelwright.draw.palette import BAD, MUTED
from kernelwright.trace.page import (
    boxed,
    problem_count,
    problem_list,
    source_rows,
    table,
)
from kernelwright.trace.report import Problem
from kernelwright.trace.triton.report import ProgramAccess, TritonReport
from kernelwright.trace.triton.terminal import cost, summary

_NEAR = 2  # lines shown around one that is outside of every kernel
_LONG = 60  # a kernel of more lines is shown in part


def as_html(report: TritonReport) -> str:
    """Write a report as one HTML element that stands alone, in light and in dark."""
    parts = [
        f"<b>{html.escape(report.kernel)}</b>: {summary(report)}",
        f"{report.bytes_requested:,} bytes moved",
        problem_count(report.problems),
    ]
    several = len(report.sources) > 1
    inside = "".join(_file(report, file, several) for file in report.sources)
    return boxed(
        report.kernel,
        " · ".join(parts),
        inside + problem_list(report.problems) + _notes(report),
    )


def _file(report: TritonReport, file: str, named: bool) -> str:
    """Return one file's lines with their figures."""
    accesses: dict[int, list[ProgramAccess]] = defaultdict(list)
    for access in report.lines:
        if access.file == file:
            accesses[access.line].append(access)
    marks: dict[int, list[Problem]] = defaultdict(list)
    for problem in report.problems:
        for line in set(problem.lines) & set(accesses):
            marks[line].append(problem)
    lines = report.sources[file].splitlines()
    margins = {
        line: (
            "<br>".join(_cost(access) for access in each),
            "<br>".join(f"{access.requests:,}" for access in each),
        )
        for line, each in accesses.items()
    }
    shown = _shown(len(lines), {*accesses}, report.extents.get(file, ()))
    rows = source_rows(lines, shown, margins, marks)
    name = html.escape(PurePath(file).name)
    head = f'<p style="margin:.5em .6em;color:{MUTED}">{name}</p>'
    return head * named + table("all programs together", "times", rows)


def _shown(
    count: int, touched: set[int], extents: tuple[tuple[int, int], ...]
) -> list[int]:
    """Return the lines to show: the kernels, and what else touches memory."""
    near: set[int] = set()
    for first, last in extents:
        if last - first < _LONG:
            near.update(range(first, last + 1))
    for line in touched - near:
        near.update(range(line - _NEAR, line + _NEAR + 1))
    return sorted(line for line in near if 0 < line <= count)


def _cost(access: ProgramAccess) -> str:
    label = {"load": "read", "store": "write"}.get(access.op, access.op)
    words = f"{label} {access.buffer}: {access.lanes:,} lanes"
    if access.masked:
        words += f", {access.masked:,} off"
    if access.outside:
        words += f", {access.outside:,} outside"
    # More than half again of what is needed is worth a look.
    wasteful = access.sectors > 1.5 * access.ideal_sectors
    if access.sectors > access.ideal_sectors:
        words += f", {cost(access)}"
    style = f' style="color:{BAD}"' if access.outside or wasteful else ""
    tip = html.escape(access.text, quote=True)
    return f'<span title="{tip}"{style}>{html.escape(words)}</span>'


def _notes(report: TritonReport) -> str:
    return "".join(
        f'<p style="margin:.5em .6em"><b>Note.</b> {html.escape(note)}</p>'
        for note in report.notes
    )
