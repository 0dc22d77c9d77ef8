"""Chapter 4: tolerances that any order passes and half precision does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from autograder.exercise import Case, Exercise
from autograder.exercises.reduction import EXERCISES
from autograder.judge.values import draw, given, is_right

BY_ID = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
Sum = Callable[[torch.Tensor], torch.Tensor]


def every_case(exercise: Exercise) -> list[Case]:
    hidden = exercise.hidden(torch.Generator().manual_seed(3))
    return [*exercise.cases, *hidden]


def terms(exercise: Exercise, x: torch.Tensor) -> torch.Tensor:
    """Return (sums, terms): what an exercise adds up, in fp32."""
    if exercise.id == "sum_squared":
        return x.square()
    if exercise.id == "mean_abs":
        return x.abs().T
    if exercise.id == "sum_all":
        return x[None]
    width = 32 if exercise.id == "warp_sum" else 256
    whole = max(256, -(-len(x) // 256) * 256)
    return torch.nn.functional.pad(x, (0, whole - len(x))).view(-1, width)


def right(exercise: Exercise, case: Case, add: Sum) -> bool:
    arguments = given(draw(exercise, case, 1, "test"))
    (reference,) = exercise.reference(arguments).values()
    scales = exercise.tolerance.scale(arguments) if exercise.tolerance.scale else {}
    x = arguments["x"]
    assert isinstance(x, torch.Tensor)
    got = add(terms(exercise, x)).float()
    if exercise.id == "mean_abs":
        got = got / len(x)
    scale = scales.get("out")
    same = is_right(got, reference, scale, exercise.tolerance, case)
    return bool(same.all())


def loop(parts: torch.Tensor) -> torch.Tensor:
    """Add one term after another, each sum rounded to fp32."""
    total = torch.zeros(parts.shape[0])
    for term in parts.T:
        total = total + term
    return total


def shuffled(parts: torch.Tensor) -> torch.Tensor:
    order = torch.randperm(parts.shape[1], generator=torch.Generator().manual_seed(5))
    return loop(parts[:, order])


def in_half(dtype: torch.dtype) -> Sum:
    """Return a sum that keeps each partial sum in a lower precision."""

    def add(parts: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(parts.shape[0], dtype=dtype)
        for term in parts.T:
            total = total + term.to(dtype)
        return total

    return add


@BY_ID
def test_every_order_of_the_sum_is_right(exercise: Exercise) -> None:
    for case in every_case(exercise):
        assert right(exercise, case, lambda parts: parts.sum(1)), case.name
        assert right(exercise, case, loop), case.name
        assert right(exercise, case, shuffled), case.name


@BY_ID
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_sum_kept_in_half_precision_is_wrong(
    exercise: Exercise, dtype: torch.dtype
) -> None:
    long = [
        case
        for case in every_case(exercise)
        if max(case.sizes.values()) > 256 and case.regime != "special"
    ]
    assert long
    for case in long:
        if min(case.sizes.values()) and exercise.tolerance.length(case) > 1:
            assert not right(exercise, case, in_half(dtype)), case.name


@BY_ID
def test_sizes_are_awkward_and_whole_where_they_are_counted(exercise: Exercise) -> None:
    sizes = [tuple(case.sizes.values()) for case in every_case(exercise)]
    assert any(0 in size for size in sizes) and any(1 in size for size in sizes)
    assert all(size % 4 == 0 for size in sizes[exercise.counted])
    assert {case.regime for case in exercise.cases} == {
        "distinct",
        "shifted",
        "special",
    }


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
def test_how_it_is_summed_is_asked_for(exercise: Exercise) -> None:
    asked = {count.metric for count in exercise.counts}
    assert {"moved", "requests", "writers", "barriers"} <= asked
    assert exercise.structure
