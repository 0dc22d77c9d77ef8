"""Training on many processors: its exercises."""

from autograder.exercises import chapter
from autograder.exercises.parallel.bucket_gradients import BUCKET_GRADIENTS
from autograder.exercises.parallel.bucketed_ddp import BUCKETED_DDP, STALE_BUCKET
from autograder.exercises.parallel.products import COLUMN_PARALLEL, ROW_PARALLEL
from autograder.exercises.parallel.ring_attention import RING_ATTENTION

EXERCISES = chapter(
    __name__,
    BUCKET_GRADIENTS,
    BUCKETED_DDP,
    STALE_BUCKET,
    COLUMN_PARALLEL,
    ROW_PARALLEL,
    RING_ATTENTION,
)
