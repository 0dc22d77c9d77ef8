"""Triton answers where they are compiled: traced, counted, and told what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from autograder.authoring.mistakes import Mistake, mistakes
from autograder.exercises import all_exercises
from autograder.judge.judge import Judge
from autograder.regions import cell_source
from autograder.submission.submitted import Cells

pytestmark = pytest.mark.gpu

EXERCISE = all_exercises()["vector_add_triton"]
RIGHT = cell_source(EXERCISE, solved=True)


@pytest.fixture(scope="module")
def gpu_judge() -> Iterator[Judge]:
    with Judge(seed=7, device="cuda") as made:
        yield made


def test_the_solution_is_traced_counted_and_right(gpu_judge: Judge) -> None:
    result = gpu_judge.grade(replace(EXERCISE, speed=None), Cells({EXERCISE.id: RIGHT}))
    assert result.passed, result.message
    assert result.words.startswith("correct (GPU)")
    sound = result.gate("sound")
    assert sound is not None and sound.status == "passed", sound
    assert any("x_ptr" in words for each in sound.detail["figures"].values()
               for words in each)  # fmt: skip


# On a GPU it is chance which program stores last.
RACES = ["stores_into_the_first_block"]


@pytest.mark.parametrize("mistake", mistakes(EXERCISE), ids=lambda one: one.name)
def test_a_wrong_answer_earns_its_own_message(
    mistake: Mistake, gpu_judge: Judge
) -> None:
    result = gpu_judge.grade(EXERCISE, Cells({EXERCISE.id: mistake.cell}))
    says = "" if mistake.name in RACES else mistake.says
    assert not result.passed and says in result.message, result.message


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("return out", "return x + y  #", ""),
        ("x + y, mask=inside", "x + z, mask=inside", "name 'z' is not defined"),
        ("[(programs,)]", "", "without a grid"),
        ("[(programs,)]", "[programs]", "the grid is a number"),
        (", mask=inside)", ")", "mask"),
    ],
)
def test_the_learners_own_line_is_named(
    gpu_judge: Judge, before: str, after: str, says: str
) -> None:
    assert before in RIGHT
    cell = RIGHT.replace(before, after)
    result = gpu_judge.grade(replace(EXERCISE, speed=None), Cells({EXERCISE.id: cell}))
    print(result.words, "|", result.message)
    if not says:  # it launched a kernel, and returned something else: that is right
        assert result.passed
        return
    assert not result.passed and says in result.message, result.message
