"""A kernel as hardware: its exercises."""

from autograder.exercises import chapter
from autograder.exercises.streaming_fpga.latency_mismatch import LATENCY_MISMATCH
from autograder.exercises.streaming_fpga.max_rescale_unit import MAX_RESCALE_UNIT
from autograder.exercises.streaming_fpga.streaming_attention import STREAMING_ATTENTION
from autograder.exercises.streaming_fpga.streaming_mac import STREAMING_MAC

EXERCISES = chapter(
    __name__,
    STREAMING_MAC,
    MAX_RESCALE_UNIT,
    STREAMING_ATTENTION,
    LATENCY_MISMATCH,
)
