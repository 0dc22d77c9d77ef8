"""What the forms of a trace's report say alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.emulator.operations import BUSIEST_WARP

if TYPE_CHECKING:
    from kernelwright.trace.report import Problem, TraceReport


def blocks_of(report: TraceReport) -> str:
    """Say how many of the blocks were run."""
    total = report.blocks_total
    if report.blocks_traced < total:
        return f"{report.blocks_traced:,} of {total:,} blocks"
    return f"all {total:,} blocks" if total > 1 else "its one block"


def work_of_a_block(report: TraceReport) -> str:
    """Say what a block's warps do together; empty where that is nothing."""
    done = [
        f"{figure:,.6g} {name}"
        for name, figure in report.by_block.items()
        if figure and name != BUSIEST_WARP
    ]
    return f"a block: {', '.join(done)}" if done else ""


def problem_lines(problems: tuple[Problem, ...]) -> list[str]:
    """Say for a terminal what was found, a line each."""
    if not problems:
        return ["no problems found"]
    lines = [f"{len(problems)} problem(s):"]
    for problem in problems:
        times = f" (seen {problem.count:,} times)" if problem.count > 1 else ""
        lines.append(f"  {problem.message}{times}")
    return lines
