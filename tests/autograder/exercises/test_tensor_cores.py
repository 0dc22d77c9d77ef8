"""Chapter 7: what is told of a stage that is multiplied too early."""

from __future__ import annotations

from edited import graded

from autograder.exercises import all_exercises
from autograder.judge.judge import Judge


def test_another_stage_is_told_what_must_agree(judge: Judge) -> None:
    ready = "half* ready = stages + t % STAGES"
    edit = (ready, ready.replace("t %", "(t + 1) %"))
    told = graded(judge, all_exercises()["gemm_pipelined"], edit)
    assert told.startswith("sound: failed") and "Three things must agree" in told
