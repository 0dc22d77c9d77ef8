"""Measure: timings, their intervals, and the ceilings of a machine."""

from kernelwright.measure.bench import bench
from kernelwright.measure.ceilings import copy_bandwidth, matmul_rate
from kernelwright.measure.interval import Interval, median_interval
from kernelwright.measure.timing import Timing

__all__ = [
    "Interval",
    "Timing",
    "bench",
    "copy_bandwidth",
    "matmul_rate",
    "median_interval",
]
