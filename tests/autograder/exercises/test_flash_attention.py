"""Chapter 9: mistakes of the loop over tiles, and of strips, that can be told apart."""

from __future__ import annotations

import pytest

from autograder.exercise import Case, Exercise, Outputs
from autograder.exercises._flash_attention_loop import Loop
from autograder.exercises._flash_attention_merge import _merged
from autograder.exercises._flash_attention_warps import FLASH_WMMA, _strips
from autograder.exercises.flash_attention import EXERCISES, FLASH_CAUSAL, FLASH_FORWARD
from autograder.oracle import draw, given, is_right

BY_ID = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
BY_NAME = {exercise.id: exercise for exercise in EXERCISES}


def right(exercise: Exercise, case: Case, got: Outputs) -> bool:
    """Say whether all outputs of a case pass."""
    problem = draw(exercise, case, 1, "test")
    exact = exercise.reference(given(problem))
    assert exercise.tolerance.scale is not None
    scales = exercise.tolerance.scale(given(problem))
    for name, output in problem.outputs.items():
        made = got[name].to(output.dtype).reshape(output.shape)
        same = is_right(made, exact[name], scales.get(name), exercise.tolerance, case)
        if not same.all():
            return False
    return True


@BY_ID
def test_every_known_mistake_is_wrong_somewhere_and_like_no_other(
    exercise: Exercise,
) -> None:
    shown: dict[str, set[tuple[str, bytes]]] = {}
    for case in exercise.cases:
        arguments = given(draw(exercise, case, 1, "test"))
        for miss in exercise.near_misses:
            output = miss.output(arguments)
            if not right(exercise, case, output):
                bits = b"".join(
                    x.float().nan_to_num(1e30, 2e30, -2e30).numpy().tobytes()
                    for x in output.values()
                )
                shown.setdefault(miss.name, set()).add((case.name, bits))
    assert shown.keys() == {miss.name for miss in exercise.near_misses}
    faces = [frozenset(seen) for seen in shown.values()]
    assert len(set(faces)) == len(faces)


@pytest.mark.parametrize("exercise", [FLASH_FORWARD, FLASH_CAUSAL], ids=lambda e: e.id)
def test_the_loop_without_a_mistake_is_right(exercise: Exercise) -> None:
    for case in exercise.cases:
        arguments = given(draw(exercise, case, 1, "test"))
        assert right(exercise, case, Loop(16)(arguments)), case.name


def test_strips_and_the_merge_without_a_mistake_are_right() -> None:
    for case in FLASH_WMMA.cases:
        arguments = given(draw(FLASH_WMMA, case, 1, "test"))
        assert right(FLASH_WMMA, case, _strips(arguments)), case.name
    merge = BY_NAME["wrong_rescale"]
    for case in merge.cases:
        arguments = given(draw(merge, case, 1, "test"))
        assert right(merge, case, _merged(arguments, "right")), case
