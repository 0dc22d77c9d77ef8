"""Right answers that no chapter shows earn all points."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from edited import graded

from autograder.exercises import all_exercises
from autograder.judge.judge import Judge

ANSWERS = Path(__file__).parent / "support" / "unusual_answers.toml"


def _answers() -> list[Any]:
    told = tomllib.loads(ANSWERS.read_text(encoding="utf-8"))
    return [
        pytest.param(name, one["edits"], id=f"{name}-{one['what'].replace(' ', '_')}")
        for name, every in told.items()
        for one in every
    ]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "edits"), _answers())
def test_an_unusual_answer_is_right(
    judge: Judge, name: str, edits: list[tuple[str, str]]
) -> None:
    assert graded(judge, all_exercises()[name], *edits) == ""
