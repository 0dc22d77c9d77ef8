"""A trace's report as HTML: the source with a margin of figures, problems as marks."""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kernelwright.draw.palette import BAD, INK, LINE, MUTED
from kernelwright.trace.words import blocks_of, work_of_a_block

if TYPE_CHECKING:
    from kernelwright.trace.report import LineAccess, Problem, TraceReport

_BOX = f"border:1px solid {LINE};border-radius:6px;overflow-x:auto;color:{INK}"
_CELL = "padding:0 .6em;white-space:pre;text-align:left;vertical-align:top;border:0"
_MONO = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.85em"
_MERGES = "\nmay merge: nvcc may make one wider access of this and its neighbours"


def as_html(report: TraceReport) -> str:
    """Write a report as one HTML element that stands alone, in light and in dark."""
    accesses: dict[int, list[LineAccess]] = defaultdict(list)
    for access in report.lines:
        accesses[access.line].append(access)
    marks: dict[int, list[Problem]] = defaultdict(list)
    for problem in report.problems:
        for line in problem.lines:
            marks[line].append(problem)
    lines = report.source.splitlines()
    shown = _shown(len(lines), {*accesses, *marks})
    margins = {
        line: (
            "<br>".join(_cost(access) for access in each),
            "<br>".join(f"{access.requests:,}" for access in each),
        )
        for line, each in accesses.items()
    }
    return boxed(
        report.kernel,
        _summary(report),
        table("a request costs", "requests", source_rows(lines, shown, margins, marks))
        + problem_list(report.problems),
    )


def boxed(kernel: str, summary: str, inside: str) -> str:
    """Put a report's parts into its box."""
    return (
        f'<div class="kw-trace" role="group" aria-label="Trace of '
        f'{html.escape(kernel)}" style="{_BOX}">'
        f'<p style="margin:.5em .6em">{summary}</p>{inside}</div>'
    )


def table(costs: str, counts: str, rows: str) -> str:
    """Return the source with its margin; ``costs`` and ``counts`` head the figures."""
    return (
        f'<table style="border-collapse:collapse;{_MONO}">'
        f'<thead><tr style="color:{MUTED}">'
        f'<th scope="col" style="{_CELL}">line</th>'
        # The margin comes first: on a narrow page the source may be cut, not that.
        f'<th scope="col" style="{_CELL}">{costs}</th>'
        f'<th scope="col" style="{_CELL}">source</th>'
        f'<th scope="col" style="{_CELL}">{counts}</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def source_rows(
    lines: Sequence[str],
    shown: Sequence[int],
    margins: Mapping[int, tuple[str, str]],
    marks: Mapping[int, Sequence[Problem]],
) -> str:
    """Return a row for each line shown, and one for each gap between them."""
    rows = []
    before = 0
    for number in shown:
        if before and number > before + 1:
            rows.append(
                f'<tr><td colspan="4" style="{_CELL};color:{MUTED}">⋮</td></tr>'
            )
        margin = margins.get(number, ("", ""))
        rows.append(_row(number, lines[number - 1], margin, marks.get(number, ())))
        before = number
    return "".join(rows)


def _shown(count: int, wanted: set[int]) -> list[int]:
    """Return the lines to show: those with something to say, and their neighbours."""
    if count <= 30:
        return list(range(1, count + 1))
    near = {line + step for line in wanted for step in range(-4, 5)}
    return sorted(line for line in near if 0 < line <= count)


def _row(
    number: int, text: str, margin: tuple[str, str], marks: Sequence[Problem]
) -> str:
    mark = ""
    style = ""
    if marks:
        kinds = ", ".join(dict.fromkeys(p.kind for p in marks))
        title = html.escape("\n".join(p.message for p in marks), quote=True)
        mark = (
            f'<span style="color:{BAD};font-weight:600" title="{title}">'
            f" ● {html.escape(kinds)}</span>"
        )
        style = f' style="box-shadow:inset 3px 0 {BAD}"'
    costs, counts = margin
    return (
        f'<tr{style}><td style="{_CELL};color:{MUTED};text-align:right">{number}</td>'
        f'<td style="{_CELL}">{costs}</td>'
        f'<td style="{_CELL}">{html.escape(text)}{mark}</td>'
        f'<td style="{_CELL};text-align:right;color:{MUTED}">{counts}</td></tr>'
    )


def _cost(access: LineAccess) -> str:
    label = {"load": "read", "store": "write"}.get(access.op, access.op)
    if access.space == "global":
        got, ideal = access.sectors_per_request, access.ideal_sectors_per_request
        unit = "sectors"
    elif access.space == "shared":
        got, ideal = access.wavefronts_per_request, access.ideal_wavefronts_per_request
        unit = "wavefronts"
    else:
        return html.escape(f"{label} {access.buffer or access.space}")
    unit = unit[:-1] if got == 1 >= ideal else unit
    figure = f"{got:.3g} {unit}" + (f", ideal {ideal:.3g}" if got > ideal else "")
    # More than half again of what is needed is worth a look.
    style = f' style="color:{BAD}"' if got > 1.5 * ideal else ""
    name = html.escape(access.buffer or access.space)
    merges = " (may merge)" if access.merges else ""
    tip = html.escape(access.text + (_MERGES if access.merges else ""), quote=True)
    return f'<span title="{tip}"{style}>{label} {name}: {figure}{merges}</span>'


def _summary(report: TraceReport) -> str:
    moved = sum(access.sectors for access in report.lines)
    parts = [
        f"<b>{html.escape(report.kernel)}</b>: {blocks_of(report)} traced",
        f"{report.bytes_requested:,} bytes of global memory asked for",
        f"{32 * moved:,} bytes in the sectors that requests touched",
        f"{32 * report.unique_sectors:,} with each sector counted once",
    ]
    if report.arithmetic_intensity is not None:
        parts.append(f"{report.arithmetic_intensity:.3g} FLOP a byte")
    parts += filter(None, [work_of_a_block(report)])
    return " · ".join([*parts, problem_count(report.problems)])


def problem_count(problems: Sequence[Problem]) -> str:
    """Say how many problems there are."""
    found = len(problems)
    if not found:
        return "no problems"
    return f'<span style="color:{BAD}">{found} problem{"s" * (found > 1)}</span>'


def problem_list(problems: Sequence[Problem]) -> str:
    """List what was found, below the source."""
    if not problems:
        return ""
    items = "".join(
        f'<li><b style="color:{BAD}">{html.escape(p.kind)}</b>: '
        f"{html.escape(p.message)}"
        + (f' <span style="color:{MUTED}">({p.count:,} times)</span>' * (p.count > 1))
        + "</li>"
        for p in problems
    )
    return f'<ol style="margin:.5em .6em .5em 2em">{items}</ol>'
