"""Chapter 8: the online rule, a block a row, a program a row, a row in pieces."""

from autograder.exercises import chapter
from autograder.exercises.softmax.fp16_overflow import FP16_OVERFLOW
from autograder.exercises.softmax.online_update import ONLINE_UPDATE
from autograder.exercises.softmax.softmax_long_rows import SOFTMAX_LONG_ROWS
from autograder.exercises.softmax.softmax_online import SOFTMAX_ONLINE
from autograder.exercises.softmax.softmax_triton import SOFTMAX_TRITON

EXERCISES = chapter(
    __name__,
    ONLINE_UPDATE,
    SOFTMAX_ONLINE,
    SOFTMAX_TRITON,
    SOFTMAX_LONG_ROWS,
    FP16_OVERFLOW,
)
