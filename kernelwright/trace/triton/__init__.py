"""What a Triton kernel does to memory, without a GPU: ``kw.trace_triton(kernel)``.

The kernel runs under Triton's own interpreter, on copies of its tensors that stand
between guards. Every block of addresses is looked at before it is touched: lanes that
a mask turns off count for nothing, lanes outside of every tensor are reported and
turned off, the rest go through and are written down. Programs run one after another:
of the races between them those are seen in which one loads what another has stored, and
for the others a picture shows what both touch.

What the interpreter itself gets wrong (bf16) is said in the report's notes.
"""

from __future__ import annotations

from kernelwright.trace.triton.face import (
    TritonLauncher,
    TritonTracer,
    trace_triton,
)
from kernelwright.trace.triton.report import (
    ProgramAccess,
    ProgramRequest,
    TritonReport,
)

__all__ = [
    "ProgramAccess",
    "ProgramRequest",
    "TritonLauncher",
    "TritonReport",
    "TritonTracer",
    "trace_triton",
]
