"""Ring all-reduce: its exercises."""

from autograder.exercises import chapter
from autograder.exercises.ring_allreduce.all_gather import ALL_GATHER
from autograder.exercises.ring_allreduce.one_shot_all_reduce import ONE_SHOT_ALL_REDUCE
from autograder.exercises.ring_allreduce.reduce_scatter import REDUCE_SCATTER
from autograder.exercises.ring_allreduce.ring_all_reduce import RING_ALL_REDUCE
from autograder.exercises.ring_allreduce.ring_deadlock import RING_DEADLOCK
from autograder.exercises.ring_allreduce.ring_step import RING_STEP

EXERCISES = chapter(
    __name__,
    RING_STEP,
    REDUCE_SCATTER,
    ALL_GATHER,
    RING_ALL_REDUCE,
    ONE_SHOT_ALL_REDUCE,
    RING_DEADLOCK,
)
