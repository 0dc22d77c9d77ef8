"""New title: its exercises."""

from autograder.exercises import chapter
from autograder.exercises.new_stem.new_stem import NEW_STEM

EXERCISES = chapter(__name__, NEW_STEM)
