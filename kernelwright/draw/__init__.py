"""Figures drawn from the reader's own kernels: SVG, both themes, no script needed."""

from kernelwright.draw.launch import LaunchMap, launch_map

__all__ = ["LaunchMap", "launch_map"]
