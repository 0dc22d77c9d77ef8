"""What a kernel does to memory, without a GPU: ``kernel.trace[grid, block](...)``.

A traced launch runs some blocks of the grid on the emulator, in a build that reports
every load and store. It counts what a profiler would (requests, sectors, wavefronts)
and finds what sanitizers would (races, wild, misaligned and uninitialised accesses,
barriers that not all threads reach). It never shows time, occupancy, stalls or
registers.

Its memory: a copy of the launch's tensors; a shadow of 36 bytes for each 4-byte word
that the traced blocks touch; and for each worker 2 MB for shared memory, at most 5 MB
of requests kept for pictures, and the steps that its warps have not finished. A lane
that is 256 accesses or 4,096 steps ahead waits for its warp, so these take 100 KB a
warp in lockstep, and at most 4 MB in one whose 32 lanes all go their own ways.

Requests of a warp whose lanes part are those that a GPU makes of the same code: lanes
meet again as soon as they can, and one that left a loop waits for those still in it.
What nvcc makes of the code may differ: a load that it keeps (``LineAccess.repeats``), a
loop that it runs in larger steps (``uneven``), neighbours that it merges (``merges``).
"""

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
