"""The workbench of *GPU Kernels from Scratch*: compile, launch, emulate, measure.

>>> import kernelwright as kw
>>> kernel = kw.cuda.compile(source)["vector_add"]
>>> kernel[kw.cdiv(n, 256), 256](x, y, out, n)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

# Asked through NVML, torch answers without starting CUDA: a process that forks
# workers must not have.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

from kernelwright import cpp, cuda, operators
from kernelwright.compare import compare
from kernelwright.device import Device, device
from kernelwright.errors import (
    ArgumentError,
    CompileError,
    KernelDeadlock,
    KernelFault,
    KernelTimeout,
    KernelwrightError,
    LaunchError,
    RankDeadlock,
    RankError,
    ToolchainError,
    TraceProblem,
)
from kernelwright.measure import (
    Point,
    PracticeGPU,
    Profiler,
    Roofline,
    Timing,
    bench,
    peak_memory,
    roofline,
)
from kernelwright.ranks import ranks
from kernelwright.trace.triton import trace_triton
from kernelwright.trace.triton.start import start_interpreter
from kernelwright.trace.unwritten import unwritten_like

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

# Without a GPU only Triton's interpreter works.
if cuda.backend() == "emulator":
    start_interpreter()

__all__ = [
    "ArgumentError",
    "CompileError",
    "Device",
    "KernelDeadlock",
    "KernelFault",
    "KernelTimeout",
    "KernelwrightError",
    "LaunchError",
    "Point",
    "PracticeGPU",
    "Profiler",
    "RankDeadlock",
    "RankError",
    "Roofline",
    "Timing",
    "ToolchainError",
    "TraceProblem",
    "bench",
    "cdiv",
    "compare",
    "cpp",
    "cuda",
    "device",
    "operators",
    "peak_memory",
    "ranks",
    "roofline",
    "trace_triton",
    "unwritten_like",
]


def cdiv(n: int, size: int) -> int:
    """Divide and round up: how many blocks of ``size`` cover ``n`` elements."""
    return -(-n // size)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the notebook's magics; called by ``%load_ext kernelwright``."""
    from kernelwright import notebook

    notebook.load_ipython_extension(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take the notebook's magics away again."""
    from kernelwright import notebook

    notebook.unload_ipython_extension(shell)
