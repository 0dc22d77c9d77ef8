"""Fusion: its exercises."""

from autograder.exercises import chapter
from autograder.exercises.fusion.fusion import FUSION

EXERCISES = chapter(__name__, FUSION)
