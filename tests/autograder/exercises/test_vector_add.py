"""Chapter 1's declarations: tolerances that judge, mistakes that can be told apart."""

from __future__ import annotations

import pytest
import torch

from autograder.exercise import Case, Exercise
from autograder.exercises.vector_add import EXERCISES
from autograder.judge.values import draw, given, is_right

BY_ID = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)


def every_case(exercise: Exercise) -> list[Case]:
    hidden = exercise.hidden(torch.Generator().manual_seed(3))
    return [*exercise.cases, *hidden]


def fits(exercise: Exercise, case: Case, got: torch.Tensor, seed: int = 1) -> bool:
    arguments = given(draw(exercise, case, seed, "test"))
    scale = exercise.tolerance.scale
    return bool(
        is_right(
            got.float(),
            exercise.reference(arguments)["out"],
            scale(arguments)["out"] if scale else None,
            exercise.tolerance,
            case,
        ).all()
    )


@BY_ID
def test_the_reference_rounded_once_is_right(exercise: Exercise) -> None:
    for case in every_case(exercise):
        arguments = given(draw(exercise, case, 1, "test"))
        assert fits(exercise, case, exercise.reference(arguments)["out"]), case.name


@BY_ID
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_an_answer_of_lower_precision_is_not(
    exercise: Exercise, dtype: torch.dtype
) -> None:
    case = exercise.cases[0]
    exact = exercise.reference(given(draw(exercise, case, 1, "test")))["out"]
    assert not fits(exercise, case, exact.to(dtype))


@BY_ID
def test_values_are_distinct_and_seeded(exercise: Exercise) -> None:
    case = exercise.cases[0]
    first, again = (draw(exercise, case, 5, "a").arguments["x"] for _ in range(2))
    other = draw(exercise, case, 6, "a").arguments["x"]
    assert isinstance(first, torch.Tensor) and isinstance(again, torch.Tensor)
    assert isinstance(other, torch.Tensor)
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert first.unique().numel() == first.numel()


@BY_ID
def test_awkward_lengths_are_tried(exercise: Exercise) -> None:
    sizes = {case.sizes["n"] for case in exercise.cases}
    wanted = {1, 31, 257} if exercise.id == "add_one" else {0, 1, 31, 33, 255, 257}
    assert wanted <= sizes


@pytest.mark.parametrize(
    "exercise", [e for e in EXERCISES if e.speed], ids=lambda e: e.id
)
def test_the_timed_case_passes_four_caches(exercise: Exercise) -> None:
    assert exercise.speed is not None
    bands = exercise.speed.bands
    assert 0 < bands["bronze"] < bands["silver"] < bands["gold"] <= 1
    # 60 MB is the largest L2 that this course has met.
    assert exercise.speed.bytes_moved(exercise.speed.case) >= 4 * 60e6
