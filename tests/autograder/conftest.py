"""One warm judge for all tests, and the proof that the next exercise is graded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))

from small_exercises import AFTER, PRINTS, RIGHT, SHORT, TWICE, write_notebook

from autograder.exercise import Exercise
from autograder.judge import recognise
from autograder.judge.judge import Judge
from autograder.judge.prints import Prints, path_of, prints_of
from autograder.judge.results import Result
from autograder.judge.selftest import LANGUAGES
from autograder.submission.submitted import Notebooks
from autograder.supervisor.workers import warm_toolchain


@pytest.fixture(scope="session", autouse=True)
def prints_of_small_exercises() -> Iterator[None]:
    """Let the tests' own exercises have prints, which stand in no file."""

    def found(exercise: Exercise) -> Prints | None:
        return PRINTS.get(path_of(exercise)) or prints_of(exercise)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recognise, "prints_of", found)
        yield


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """One judge on the CPU, with short deadlines: its warm parent serves all."""
    warm_toolchain("cpu")
    with Judge(seed=7, device="cpu", deadlines=SHORT) as made:
        # Before a test puts something else in a gate's place.
        for language in LANGUAGES:
            made.unfit(language)
        yield made


@pytest.fixture
def grade_both(judge: Judge, tmp_path: Path) -> Callable[..., Result]:
    """Grade a cell for ``twice``, and prove that the next exercise is still graded."""

    def grade(cell: str | dict[str, Any], exercise: Exercise = TWICE) -> Result:
        path = tmp_path / "01_small.ipynb"
        write_notebook(path, [cell, RIGHT.format(name="after")])
        submission = Notebooks(tmp_path)
        result = judge.grade(exercise, submission)
        after = judge.grade(AFTER, submission)
        assert (after.status, after.earned) == ("passed", 10.0), after.message
        return result

    return grade
