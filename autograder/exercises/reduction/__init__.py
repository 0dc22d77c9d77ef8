"""Chapter 4: trees, shuffles, rows and columns, and a sum in one pass."""

from autograder.exercises import chapter
from autograder.exercises.reduction.block_sum import BLOCK_SUM
from autograder.exercises.reduction.lost_lanes import LOST_LANES
from autograder.exercises.reduction.mean_abs import MEAN_ABS
from autograder.exercises.reduction.sum_all import SUM_ALL
from autograder.exercises.reduction.sum_squared import SUM_SQUARED
from autograder.exercises.reduction.warp_sum import WARP_SUM

EXERCISES = chapter(
    __name__, BLOCK_SUM, WARP_SUM, SUM_SQUARED, MEAN_ABS, LOST_LANES, SUM_ALL
)
