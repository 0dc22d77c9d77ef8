"""Figures drawn from the reader's own kernels: SVG, both themes, no script needed.

Those that begin with ``explore`` trace the kernel again for each choice.
"""

from kernelwright.draw.access import access_map
from kernelwright.draw.attention import memory_growth, tile_visits
from kernelwright.draw.banks import bank_map, fours_map, tile_map
from kernelwright.draw.bits import cancelled_bits
from kernelwright.draw.blocking import explore_blocking
from kernelwright.draw.chain import Chain, chain_of
from kernelwright.draw.collectives import explore_ring, message_steps
from kernelwright.draw.epilogue import epilogue_map
from kernelwright.draw.flows import fusion_flows
from kernelwright.draw.fragments import accumulator_map, fragment_map
from kernelwright.draw.im2col import im2col_tile
from kernelwright.draw.lanes import lane_map
from kernelwright.draw.launch import LaunchMap, launch_map
from kernelwright.draw.live import Explorer, explore_stride, explore_tile
from kernelwright.draw.look_back import look_back
from kernelwright.draw.machine import MachineTour, machine_tour
from kernelwright.draw.masks import corner_masks
from kernelwright.draw.online_softmax import online_softmax
from kernelwright.draw.pipeline import explore_pipeline
from kernelwright.draw.positions import explore_positions
from kernelwright.draw.quantized import explore_groups
from kernelwright.draw.ragged import expert_tiles
from kernelwright.draw.roles import role_timeline
from kernelwright.draw.routing import explore_routing
from kernelwright.draw.sectors import sector_map
from kernelwright.draw.shuffle import shuffle_steps
from kernelwright.draw.steps import Steps
from kernelwright.draw.tile import tile_layout
from kernelwright.draw.timeline import explore_timeline
from kernelwright.draw.warp_tile import warp_tile
from kernelwright.draw.words import explore_words

__all__ = [
    "Chain",
    "Explorer",
    "LaunchMap",
    "MachineTour",
    "Steps",
    "access_map",
    "accumulator_map",
    "bank_map",
    "cancelled_bits",
    "chain_of",
    "corner_masks",
    "epilogue_map",
    "expert_tiles",
    "explore_blocking",
    "explore_groups",
    "explore_pipeline",
    "explore_positions",
    "explore_ring",
    "explore_routing",
    "explore_stride",
    "explore_tile",
    "explore_timeline",
    "explore_words",
    "fours_map",
    "fragment_map",
    "fusion_flows",
    "im2col_tile",
    "lane_map",
    "launch_map",
    "look_back",
    "machine_tour",
    "memory_growth",
    "message_steps",
    "online_softmax",
    "role_timeline",
    "sector_map",
    "shuffle_steps",
    "tile_layout",
    "tile_map",
    "tile_visits",
    "warp_tile",
]
