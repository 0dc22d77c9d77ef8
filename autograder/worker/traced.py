"""A traced launch, told in plain numbers that can cross to the supervisor.

The kernel runs on the emulator with every access recorded: what is wrong with it, and
what each line asks of memory. The learner's machine code shares this process, so what
is told here is as honest as that code is: it may cost or earn the points for counts
and soundness, never those for right values, which the supervisor compares itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from autograder.worker.by_rank import launch_kernel
from autograder.worker.wire import Header

if TYPE_CHECKING:
    from kernelwright.trace import LineAccess, Problem

# A launch of no more threads is traced whole; of a larger one some blocks.
WHOLE_THREADS = 1 << 14
_MOST_LINES, _MOST_PROBLEMS, _LONGEST = 400, 20, 1000


def trace_kernel(entry: Any, values: Sequence[Any], header: Header) -> Header:
    """Launch a kernel under the trace and describe what it did."""
    launch = header["launch"]
    names = [spec["name"] for spec in header["arguments"]]
    # By position: the learner may call the parameters what he likes.
    unwritten = tuple(names.index(name) for name in header["unwritten"])
    threads = 1
    for size in (*launch["grid"], *launch["block"]):
        threads *= size
    tracer = entry.trace.options(unwritten=unwritten)
    if threads <= WHOLE_THREADS:
        tracer = tracer.options(blocks="all")
    report = launch_kernel(tracer, values, header)
    return {
        "ok": True,
        "launches": 1,
        "by_block": dict(report.by_block),
        "lines": [told_access(a) for a in report.lines[:_MOST_LINES]],
        "problems": [told_problem(p) for p in report.problems[:_MOST_PROBLEMS]],
        # What is scratch memory may be stored as often as one likes.
        "sharing": [
            asdict(replace(s, position=s.position % len(names)))  # of any rank's
            for s in report.sharing
            if s.op == "load" or s.position % len(names) in unwritten
        ],
    }


def told_access(access: LineAccess) -> Header:
    """Tell what a line asked of memory in plain numbers."""
    return {
        "line": access.line,
        "space": access.space,
        "op": access.op,
        "requests": access.requests,
        "sectors": access.sectors,
        "wavefronts": access.wavefronts,
        "bytes": access.bytes,
        "ideal_sectors": float(access.ideal_sectors_per_request),
        "ideal_wavefronts": float(access.ideal_wavefronts_per_request),
        "buffer": access.buffer or "",
        "lanes": float(access.lanes),
    }


def told_problem(problem: Problem) -> Header:
    """Tell a problem in plain numbers and words."""
    return {
        "kind": problem.kind,
        "lines": [int(line) for line in problem.lines[:4]],
        "block": list(problem.block),
        "threads": [list(thread) for thread in problem.threads[:4]],
        "buffer": problem.buffer or "",
        "index": problem.index,
        "count": problem.count,
        "message": problem.message[:_LONGEST],
    }
