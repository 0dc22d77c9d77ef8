"""Figures drawn from the reader's own kernels: SVG, both themes, no script needed."""

from kernelwright.draw.access import access_map
from kernelwright.draw.banks import bank_map, tile_map
from kernelwright.draw.launch import LaunchMap, launch_map
from kernelwright.draw.machine import MachineTour, machine_tour
from kernelwright.draw.sectors import sector_map
from kernelwright.draw.shuffle import shuffle_steps
from kernelwright.draw.steps import Steps
from kernelwright.draw.tile import tile_layout

__all__ = [
    "LaunchMap",
    "MachineTour",
    "Steps",
    "access_map",
    "bank_map",
    "launch_map",
    "machine_tour",
    "sector_map",
    "shuffle_steps",
    "tile_layout",
    "tile_map",
]
