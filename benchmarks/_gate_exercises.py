"""The exercises whose speed gate is doubted, as the gate takes a file of exercises."""

from __future__ import annotations

from dataclasses import replace

from autograder.exercises._reduction_matrix import MEAN_ABS
from autograder.exercises._reduction_pass import SUM_ALL
from autograder.exercises._tensor_cores import timed
from autograder.exercises.tensor_cores import WMMA_TILE

# It is not timed in the course. The bands decide nothing here.
EXERCISES = (
    MEAN_ABS,
    SUM_ALL,
    replace(WMMA_TILE, speed=timed({"bronze": 0.01, "silver": 0.02, "gold": 0.03})),
)
