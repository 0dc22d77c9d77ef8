"""INT4 weights: its exercises."""

from autograder.exercises import chapter
from autograder.exercises.int4.int4 import INT4

EXERCISES = chapter(__name__, INT4)
