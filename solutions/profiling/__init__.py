"""Measure kernels: time, regions, memory, arithmetic intensity. Chapter 3.

    time_kernel(gpu, launch, flush, warm_up, samples)   median ms of one launch
    Profiler(gpu)                                       nested regions, summed up
    peak_memory(gpu, fn)                                bytes at the worst moment
    arithmetic_intensity(flops, read, written, size)    FLOP/byte

Each is the shortest honest form of a tool that the workbench has in full: ``kw.bench``
(rotated inputs, intervals), ``kw.Profiler`` (memory, traces, CPUs), ``kw.peak_memory``
(CPUs too) and ``kw.roofline``. ``gpu`` is ``torch.cuda``, or a ``kw.PracticeGPU``,
whose right answers are known.

When not to use it: to publish a number. Take ``kw.bench``, which says how far its
median can be trusted.
"""

from __future__ import annotations

from solutions.profiling.intensity import arithmetic_intensity
from solutions.profiling.memory import peak_memory
from solutions.profiling.regions import Profiler
from solutions.profiling.timing import time_kernel

__all__ = ["Profiler", "arithmetic_intensity", "peak_memory", "time_kernel"]
