"""Figures drawn from the reader's own kernels: SVG, both themes, no script needed."""

from kernelwright.draw.launch import LaunchMap, launch_map
from kernelwright.draw.machine import MachineTour, machine_tour

__all__ = ["LaunchMap", "MachineTour", "launch_map", "machine_tour"]
