"""A trace's report in a terminal: the accesses as a table, then the problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.trace.words import blocks_of, problem_lines, work_of_a_block

if TYPE_CHECKING:
    from kernelwright.trace.report import LineAccess, TraceReport

_HEAD = (
    f"{'line':>5}  {'access':<22} {'buffer':<12} {'lanes':>5}  {'requests':>9}  cost"
)


def as_text(report: TraceReport) -> str:
    """Write a report for a terminal, 80 columns where the source allows."""
    out = [f"{report.kernel}: {blocks_of(report)} traced", _HEAD]
    out += [_row(access) for access in report.lines]
    moved = 32 * report.unique_sectors
    out.append(
        f"requested {report.bytes_requested:,} bytes of global memory; its sectors, "
        f"each once: {moved:,} bytes"
    )
    if report.arithmetic_intensity is not None:
        out.append(f"{report.arithmetic_intensity:.3g} FLOP for each of these bytes")
    out += filter(None, [work_of_a_block(report)])
    out += problem_lines(report.problems)
    return "\n".join(out)


def _row(access: LineAccess) -> str:
    what = f"{access.space} {access.op} {access.width} B"
    merges = " (nvcc may merge)" if access.merges else ""
    if access.repeats:
        merges += f" ({access.repeats:,} repeated: nvcc may read once)"
    if access.uneven:
        merges += " (nvcc may run this loop in larger steps)"
    return (
        f"{access.line:>5}  {what:<22} {access.buffer or '':<12} {access.lanes:>5.3g}  "
        f"{access.requests:>9,}  {cost(access)}{merges}"
    )


def cost(access: LineAccess) -> str:
    """Say what a request costs, beside the ideal."""
    if access.space == "global":
        ideal, got = access.ideal_sectors_per_request, access.sectors_per_request
        return f"{got:.3g} sectors per request, ideal {ideal:.3g}"
    if access.space == "shared":
        ideal, got = access.ideal_wavefronts_per_request, access.wavefronts_per_request
        return f"{got:.3g} wavefronts per request, ideal {ideal:.3g}"
    return ""
