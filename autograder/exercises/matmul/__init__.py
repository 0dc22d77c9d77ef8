"""Chapter 6: the fp32 matrix product, from one thread an element to 8 x 8 sums."""

from autograder.exercises import chapter
from autograder.exercises.matmul.matmul_coalesced import MATMUL_COALESCED
from autograder.exercises.matmul.matmul_fast import MATMUL_FAST
from autograder.exercises.matmul.matmul_naive import MATMUL_NAIVE
from autograder.exercises.matmul.matmul_register_blocked import (
    MATMUL_REGISTER_BLOCKED,
)
from autograder.exercises.matmul.matmul_tiled import MATMUL_TILED
from autograder.exercises.matmul.matmul_warp_tiles import MATMUL_WARP_TILES
from autograder.exercises.matmul.matmul_wide import MATMUL_WIDE
from autograder.exercises.matmul.missing_barrier import MISSING_BARRIER

EXERCISES = chapter(
    __name__,
    MATMUL_NAIVE,
    MATMUL_COALESCED,
    MATMUL_TILED,
    MATMUL_REGISTER_BLOCKED,
    MATMUL_WIDE,
    MATMUL_WARP_TILES,
    MISSING_BARRIER,
    MATMUL_FAST,
)
