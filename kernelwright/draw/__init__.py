"""Figures drawn from the reader's own kernels: SVG, both themes, no script needed.

The two that begin with ``explore`` trace the kernel again for each choice.
"""

from kernelwright.draw.access import access_map
from kernelwright.draw.banks import bank_map, tile_map
from kernelwright.draw.launch import LaunchMap, launch_map
from kernelwright.draw.live import Explorer, explore_stride, explore_tile
from kernelwright.draw.machine import MachineTour, machine_tour
from kernelwright.draw.sectors import sector_map
from kernelwright.draw.shuffle import shuffle_steps
from kernelwright.draw.steps import Steps
from kernelwright.draw.tile import tile_layout

__all__ = [
    "Explorer",
    "LaunchMap",
    "MachineTour",
    "Steps",
    "access_map",
    "bank_map",
    "explore_stride",
    "explore_tile",
    "launch_map",
    "machine_tour",
    "sector_map",
    "shuffle_steps",
    "tile_layout",
    "tile_map",
]
