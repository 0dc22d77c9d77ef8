"""A trace's report in a terminal: the accesses as a table, then the problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelwright.trace.report import LineAccess, TraceReport

_HEAD = (
    f"{'line':>5}  {'access':<22} {'buffer':<12} {'lanes':>5}  {'requests':>9}  cost"
)


def as_text(report: TraceReport) -> str:
    """Write a report for a terminal, 80 columns where the source allows."""
    blocks = (
        f"all {report.blocks_total} blocks"
        if report.blocks_traced == report.blocks_total
        else f"{report.blocks_traced} of {report.blocks_total} blocks"
    )
    out = [f"{report.kernel}: {blocks} traced", _HEAD]
    out += [_row(access) for access in report.lines]
    moved = 32 * report.unique_sectors
    out.append(
        f"requested {report.bytes_requested:,} bytes of global memory; its sectors, "
        f"each once: {moved:,} bytes"
    )
    if report.arithmetic_intensity is not None:
        out.append(f"{report.arithmetic_intensity:.3g} FLOP for each of these bytes")
    if report.problems:
        out.append(f"{len(report.problems)} problem(s):")
        out += [
            f"  {p.message}" + (f" (seen {p.count:,} times)" if p.count > 1 else "")
            for p in report.problems
        ]
    else:
        out.append("no problems found")
    return "\n".join(out)


def _row(access: LineAccess) -> str:
    what = f"{access.space} {access.op} {access.width} B"
    merges = " (nvcc may merge)" if access.merges else ""
    return (
        f"{access.line:>5}  {what:<22} {access.buffer or '':<12} {access.lanes:>5.3g}  "
        f"{access.requests:>9,}  {cost(access)}{merges}"
    )


def cost(access: LineAccess) -> str:
    """Say what a request costs, beside the ideal."""
    if access.space == "global":
        ideal, got = access.ideal_sectors_per_request, access.sectors_per_request
        return f"{got:.3g} sectors a request, ideal {ideal:.3g}"
    if access.space == "shared":
        ideal, got = access.ideal_wavefronts_per_request, access.wavefronts_per_request
        return f"{got:.3g} wavefronts a request, ideal {ideal:.3g}"
    return ""
