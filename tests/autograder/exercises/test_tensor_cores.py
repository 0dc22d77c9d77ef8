"""Chapter 7: mistakes that can be told apart."""

from __future__ import annotations

import pytest

from autograder.exercise import Exercise
from autograder.exercises._tensor_cores_mistakes import TOO_EARLY
from autograder.exercises.tensor_cores import EXERCISES, GEMM_PIPELINED
from autograder.oracle import draw, given, is_right

BY_ID = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)


@BY_ID
def test_every_known_mistake_is_wrong_somewhere_and_like_no_other(
    exercise: Exercise,
) -> None:
    shown: dict[str, set[tuple[str, bytes]]] = {}
    for case in exercise.cases:
        arguments = given(draw(exercise, case, 1, "test"))
        (reference,) = exercise.reference(arguments).values()
        scales = exercise.tolerance.scale(arguments) if exercise.tolerance.scale else {}
        for miss in exercise.near_misses:
            (output,) = miss.output(arguments).values()
            assert output.shape == reference.shape
            right = is_right(
                output.float(), reference, scales.get("c"), exercise.tolerance, case
            )
            if not right.all():
                bits = output.float().nan_to_num(1e30, 2e30, -2e30).numpy().tobytes()
                shown.setdefault(miss.name, set()).add((case.name, bits))
    assert shown.keys() == {miss.name for miss in exercise.near_misses}
    faces = [frozenset(seen) for seen in shown.values()]
    assert len(set(faces)) == len(faces)


def test_a_stage_read_too_early_is_nan_except_where_nothing_is_summed() -> None:
    for case in GEMM_PIPELINED.cases:
        arguments = given(draw(GEMM_PIPELINED, case, 1, "test"))
        (output,) = TOO_EARLY.output(arguments).values()
        assert bool(output.isnan().all()) == (case.sizes["k"] > 0)
