"""Chapter 3's declarations: draws by seed, what is returned, numbers quoted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from autograder.exercise import Exercise
from autograder.exercises.profiling import EXERCISES
from autograder.exercises.profiling.profiler import paths_of
from autograder.judge.values import draw, given
from autograder.worker.adapters.practice import adapt_profiler
from autograder.worker.entry import WrongReturn
from kernelwright.measure.practice import PracticeGPU
from solutions import profiling as solved

BY_ID = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)


@BY_ID
def test_an_exercise_is_drawn_anew_from_each_seed(exercise: Exercise) -> None:
    if exercise.id == "arithmetic_intensity":
        assert len({c.name for c in exercise.hidden(torch.Generator())}) == 6
        return
    first, again, other = (
        str(exercise.reference(given(draw(exercise, exercise.cases[0], s, "t"))))
        for s in (5, 5, 6)
    )
    assert first == again != other


def test_paths_follow_depths() -> None:
    assert paths_of([0, 1, 2, 1, 0], [0, 1, 2, 1, 0]) == [
        "step",
        "step/forward",
        "step/forward/forward_again",
        "step/forward",
        "step",
    ]


def test_what_a_profiler_returns_is_named_when_it_does_not_fit() -> None:
    class Listed(solved.Profiler):
        def summary(self) -> list[object]:  # type: ignore[override]
            return []

    script = (torch.tensor([0]), torch.tensor([0]), torch.tensor([[0.1, 0.1]]), -1)
    with pytest.raises(WrongReturn, match=r"summary\(\) returned a list"):
        adapt_profiler(Listed, *script)
    calls, total, own = adapt_profiler(solved.Profiler, *script)
    assert calls.tolist() == [1]
    assert torch.equal(total, own) and total.item() == pytest.approx(0.2)


def test_the_numbers_that_the_chapter_quotes() -> None:
    """The chapter says 6.56 of the stub; on a practice GPU that is no measurement."""
    from autograder.regions import cell_source

    exercise = EXERCISES[-1]
    namespace: dict[str, Any] = {}
    exec(exercise.prelude, namespace)
    exec(cell_source(exercise, solved=False), namespace)
    gpu = PracticeGPU()
    old = gpu.kernel("old", 0.5, 0.3, compile_ms=30)
    new = gpu.kernel("new", 0.5, 0.3, compile_ms=30)
    ratio = namespace["compare"](gpu, old, new, gpu.flush, 3, 20)
    assert f"{ratio:.2f}" == "6.56"
