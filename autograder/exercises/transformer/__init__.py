"""A whole transformer: its exercises."""

from autograder.exercises import chapter
from autograder.exercises.transformer.compress_model import COMPRESS_MODEL
from autograder.exercises.transformer.generate import GENERATE
from autograder.exercises.transformer.misplaced_token import MISPLACED_TOKEN
from autograder.exercises.transformer.train_step import TRAIN_STEP
from autograder.exercises.transformer.transformer_block import TRANSFORMER_BLOCK

EXERCISES = chapter(
    __name__,
    TRANSFORMER_BLOCK,
    TRAIN_STEP,
    COMPRESS_MODEL,
    GENERATE,
    MISPLACED_TOKEN,
)
