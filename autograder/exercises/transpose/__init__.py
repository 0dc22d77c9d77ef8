"""Chapter 2: coalescing, tiles, bank conflicts, and structures of arrays."""

from autograder.exercises import chapter
from autograder.exercises.transpose.aos_to_soa import AOS_TO_SOA
from autograder.exercises.transpose.copy_coalesced import COPY_COALESCED
from autograder.exercises.transpose.transpose_padded import TRANSPOSE_PADDED
from autograder.exercises.transpose.transpose_swizzled import TRANSPOSE_SWIZZLED
from autograder.exercises.transpose.transpose_tiled import TRANSPOSE_TILED

EXERCISES = chapter(
    __name__,
    COPY_COALESCED,
    TRANSPOSE_TILED,
    TRANSPOSE_PADDED,
    AOS_TO_SOA,
    TRANSPOSE_SWIZZLED,
)
