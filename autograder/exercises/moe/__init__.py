"""Mixture of experts: its exercises."""

from autograder.exercises import chapter
from autograder.exercises.moe.moe import MOE

EXERCISES = chapter(__name__, MOE)
