"""What a kernel does to memory, without a GPU: ``kernel.trace[grid, block](...)``."""

from __future__ import annotations

from kernelwright.trace.face import TraceLauncher, Tracer
from kernelwright.trace.report import (
    LineAccess,
    Problem,
    Request,
    Totals,
    TraceReport,
)

__all__ = [
    "LineAccess",
    "Problem",
    "Request",
    "Totals",
    "TraceLauncher",
    "TraceReport",
    "Tracer",
]
