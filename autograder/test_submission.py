"""One test an exercise: ``pytest autograder --submission chapters --seed 1``."""

from __future__ import annotations

import pytest

from autograder.exercise import Exercise
from autograder.judge.judge import Judge
from autograder.learner.show import CheckResult
from autograder.submission.submitted import Submission


def test_exercise(exercise: Exercise, submission: Submission, judge: Judge) -> None:
    """Grade one exercise by the path that ``make grade`` takes."""
    result = judge.grade(exercise, submission)
    if result.status == "infrastructure error":
        raise RuntimeError(result.message)
    if not result.passed:
        pytest.fail(f"{CheckResult(result, judge.seed)!r}\nseed {judge.seed}", False)
