"""A Triton trace in a terminal: the accesses as a table, then problems and notes."""

from __future__ import annotations

from kernelwright.trace.triton.report import ProgramAccess, TritonReport
from kernelwright.trace.words import problem_lines

_HEAD = (
    f"{'line':>5}  {'access':<11} {'buffer':<12} {'times':>6} {'lanes':>8} "
    f"{'masked':>7} {'bytes':>10}  cost"
)


def as_text(report: TritonReport) -> str:
    """Write a report for a terminal, 80 columns where the names allow."""
    out = [f"{report.kernel}: {summary(report)}", _HEAD]
    file = next(iter(report.sources), "")
    for access in report.lines:
        if access.file != file:
            file = access.file
            out.append(f"in {file}:")
        out.append(_row(access))
    out.append(f"moved {report.bytes_requested:,} bytes")
    out += problem_lines(report.problems)
    out += [f"note: {note}" for note in report.notes]
    return "\n".join(out)


def summary(report: TritonReport) -> str:
    """Say what ran."""
    programs = f"{report.programs:,} program{'s' * (report.programs != 1)}"
    launches = len(report.launches)
    return programs if launches == 1 else f"{launches} launches, {programs}"


def cost(access: ProgramAccess) -> str:
    """Say how many sectors were moved, beside the ideal."""
    got, ideal = access.sectors, access.ideal_sectors
    unit = "sector" if got == 1 else "sectors"
    return f"{got:,} {unit}" if got <= ideal else f"{got:,} {unit}, ideal {ideal:,}"


def _row(access: ProgramAccess) -> str:
    what = f"{access.op} {access.width} B"
    return (
        f"{access.line:>5}  {what:<11} {access.buffer:<12} {access.requests:>6,} "
        f"{access.lanes:>8,} {access.masked:>7,} {access.bytes:>10,}  {cost(access)}"
    )
