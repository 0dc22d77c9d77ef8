"""Measure: timings, their intervals, regions, memory, and a machine's ceilings."""

from kernelwright.measure.bench import bench
from kernelwright.measure.ceilings import copy_bandwidth, matmul_rate
from kernelwright.measure.interval import Interval, median_interval
from kernelwright.measure.memory import MemoryUse, peak_memory
from kernelwright.measure.practice import PracticeGPU
from kernelwright.measure.profiler import Profiler
from kernelwright.measure.roofline import Point, Roofline, roofline
from kernelwright.measure.stored import stored_run, stored_text
from kernelwright.measure.timer_view import timer_view
from kernelwright.measure.timing import Timing

__all__ = [
    "Interval",
    "MemoryUse",
    "Point",
    "PracticeGPU",
    "Profiler",
    "Roofline",
    "Timing",
    "bench",
    "copy_bandwidth",
    "matmul_rate",
    "median_interval",
    "peak_memory",
    "roofline",
    "stored_run",
    "stored_text",
    "timer_view",
]
