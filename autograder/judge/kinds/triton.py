"""A function in Python whose work Triton kernels do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from autograder.exercise import Exercise
from autograder.judge.kinds.python import PythonFunction
from autograder.judge.words import not_by_kernels
from autograder.worker.wire import Header


class TritonFunction(PythonFunction):
    """Its kernels are watched in Triton's interpreter, next to a GPU too."""

    title: ClassVar[str] = "Triton"
    traced: ClassVar[bool] = True
    counted: ClassVar[bool] = True

    def objection(
        self, exercise: Exercise, answer: Header, data: Sequence[bytes], right: bool
    ) -> str:
        """Ask for kernels where the exercise does and there was work for any."""
        if exercise.wants_triton and any(data):
            trouble = not_by_kernels(answer, exercise.name, right)
            if trouble:
                return trouble
        return super().objection(exercise, answer, data, right)
