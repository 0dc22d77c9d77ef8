"""A call whose Triton kernels are traced, told in plain numbers for the supervisor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from autograder.worker.traced import told_problem
from autograder.worker.wire import Header
from kernelwright.trace.triton.face import traced_call
from kernelwright.trace.triton.report import (
    AVERAGE_PROGRAM,
    BUSIEST_PROGRAM,
    PRODUCTS,
    WIDE_PRODUCTS,
    ProgramAccess,
    TritonReport,
)

_MOST_LINES, _MOST_PROBLEMS, _MOST_NOTES = 400, 20, 5


def trace_triton(entry: Any, values: Sequence[Any], files: Mapping[str, str]) -> Header:
    """Call a function under Triton's interpreter and describe what its kernels did."""
    report = traced_call(entry, values, files=files)
    lines = [access for access in report.lines if access.lanes]
    return {
        "ok": True,
        "launches": len(report.launches),
        "by_block": {},
        "lines": [_access(access) for access in lines[:_MOST_LINES]],
        "problems": [told_problem(p) for p in report.problems[:_MOST_PROBLEMS]],
        "sharing": [asdict(shared) for shared in report.sharing[:_MOST_LINES]],
        "own": _own(report),
        "notes": [note[:500] for note in report.notes[:_MOST_NOTES]],
    }


def _own(report: TritonReport) -> Header:
    products = report.products
    return {
        PRODUCTS: sum(products.values()),
        WIDE_PRODUCTS: sum(n for bits, n in products.items() if bits > 16),
        BUSIEST_PROGRAM: report.busiest.most,
        AVERAGE_PROGRAM: report.busiest.average,
    }


def _access(access: ProgramAccess) -> Header:
    # A program is not a warp: what one asks for at once is nobody's request.
    return {
        "line": access.line,
        "space": "global",
        "op": access.op,
        "requests": access.requests,
        "sectors": 0,
        "wavefronts": 0,
        "bytes": access.bytes,
        "ideal_sectors": 0.0,
        "ideal_wavefronts": 0.0,
        "buffer": access.buffer,
    }
