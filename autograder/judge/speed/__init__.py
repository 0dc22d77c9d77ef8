"""The speed gate: how fast an answer is, against a peer timed in the same run.

``judge_speed`` runs the trial: the peer in a trusted process that owns the memory
and draws the inputs, the learner's code in another, the clock in a third, which is
the one that calls it.
"""

from autograder.judge.speed.judge import judge_speed
from autograder.judge.speed.verdict import SpeedVerdict

__all__ = ["SpeedVerdict", "judge_speed"]
