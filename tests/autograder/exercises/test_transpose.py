"""Chapter 2: shapes that are awkward, exact bits."""

from __future__ import annotations

import pytest
import torch

from autograder.exercise import Case, Exercise
from autograder.exercises.transpose import EXERCISES
from autograder.judge.values import draw, given, is_right

BY_ID = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
MATRICES = [e for e in EXERCISES if e.id.startswith("transpose")]


def every_case(exercise: Exercise) -> list[Case]:
    hidden = exercise.hidden(torch.Generator().manual_seed(3))
    return [*exercise.cases, *hidden]


def fits(exercise: Exercise, case: Case, got: torch.Tensor) -> bool:
    (reference,) = exercise.reference(given(draw(exercise, case, 1, "test"))).values()
    same = is_right(got.float(), reference, None, exercise.tolerance, case)
    return bool(same.all())


@BY_ID
def test_only_the_very_bits_are_right(exercise: Exercise) -> None:
    for case in every_case(exercise):
        arguments = given(draw(exercise, case, 1, "test"))
        (reference,) = exercise.reference(arguments).values()
        assert fits(exercise, case, reference), case.name
    case = exercise.cases[0]
    (reference,) = exercise.reference(given(draw(exercise, case, 1, "test"))).values()
    assert not fits(exercise, case, reference.float() * (1 + 2**-23))
    assert not fits(exercise, case, reference.bfloat16())


@pytest.mark.parametrize("exercise", MATRICES, ids=lambda e: e.id)
def test_shapes_are_awkward_and_fit_what_is_asked(exercise: Exercise) -> None:
    shapes = [(c.sizes["rows"], c.sizes["columns"]) for c in every_case(exercise)]
    assert any(rows != columns for rows, columns in shapes)
    assert any(not rows * columns for rows, columns in shapes)
    in_fours = all(not (rows % 4 or columns % 4) for rows, columns in shapes)
    assert in_fours == (exercise.id == "transpose_swizzled")
    # The counts are asked of whole tiles, which come first.
    assert not (shapes[0][0] % 32 or shapes[0][1] % 32)


@pytest.mark.parametrize(
    "exercise", [e for e in EXERCISES if e.speed], ids=lambda e: e.id
)
def test_the_timed_case_passes_four_caches(exercise: Exercise) -> None:
    assert exercise.speed is not None
    bands = exercise.speed.bands
    assert 0 < bands["bronze"] < bands["silver"] < bands["gold"] <= 1
    # 60 MB is the largest L2 that this course has met.
    assert exercise.speed.bytes_moved(exercise.speed.case) >= 4 * 60e6


@BY_ID
def test_what_it_moves_is_asked_for(exercise: Exercise) -> None:
    asked = {(count.space, count.op) for count in exercise.counts}
    assert {("global", "load"), ("global", "store")} <= asked
