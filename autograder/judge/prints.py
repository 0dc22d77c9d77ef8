"""Prints: what known mistakes put out on the public cases, kept from real runs.

A print holds the outputs of one wrong answer at a few places of each public case, and
how many elements were wrong. Whoever's outputs agree with it at every case, and differ
from the right answer's, has made that mistake. ``make mistakes`` writes them
(``autograder/authoring/prints.py``), one file an exercise::

    {"made_of": "3f0c…",
     "cases": [{"name": "n = 257", "at": {"out": [0, 31, 256]},
                "answer": {"out": [1.5, -0.25, 3.0]}, "within": {}}, …],
     "mistakes": {"guard_too_tight": {
         "says": "Only the last element is missing: …",
         "cases": {"0": {"wrong": {"out": 1}, "out": [1.5, -0.25, "unwritten"]}}}}}

A case that a mistake does not name comes out right in spite of it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from autograder.exercise import Case, Exercise, Problem, withheld
from autograder.judge.values import Verdict, first_wrong, given, is_mistaken, scales_of
from autograder.supervisor.link import InfrastructureError
from autograder.worker.tensors import from_bytes

EXERCISES = Path(__file__).parents[1] / "exercises"
UNWRITTEN = "unwritten"
# Where rounding decides which elements are wrong, a GPU's may be a few others.
_COUNT_APART, _SHARE_APART = 2, 0.05
# Numbers are kept with so many digits.
DIGITS = 8
# With so many a float32 comes back as it was: where nothing may be rounded.
DIGITS_OF_EXACT = 9
# Those of a float64 output, which is held to more.
DIGITS_OF_DOUBLES = 17
_SAME = 1e-6

Number = float | int | str


@dataclass(frozen=True)
class Print:
    """One known mistake as it shows.

    Args:
        name: what is wrong, in a few words with underscores.
        says: the sentence that whoever makes it is told.
        cases: by the number of the public case: for each output how many elements
            are wrong and the values at the print's places, or ``{"trouble": kind}``.
        needs: what the learner's code must hold before it is said, a regular
            expression; '' for nothing.
        lacks: likewise what it must not hold.
    """

    name: str
    says: str
    cases: Mapping[int, Mapping[str, Any]]
    needs: str = ""
    lacks: str = ""

    def may_be_said_of(self, code: str) -> bool:
        """Say whether its premises hold for a cell's code, comments left out."""
        needed = not self.needs or re.search(self.needs, code) is not None
        return needed and (not self.lacks or re.search(self.lacks, code) is None)


@dataclass(frozen=True)
class Places:
    """Where the outputs of one public case are looked at, and what is right there.

    ``within`` says how far from it is right too, where an edition has no reference.
    """

    name: str
    at: Mapping[str, torch.Tensor]
    answer: Mapping[str, torch.Tensor]
    within: Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Prints:
    """All prints of one exercise."""

    made_of: str
    cases: tuple[Places, ...]
    mistakes: tuple[Print, ...]

    def fits(
        self,
        mistake: Print,
        number: int,
        exercise: Exercise,
        case: Case,
        problem: Problem,
        verdict: Verdict,
    ) -> bool:
        """Say whether what came of a public case is what a mistake puts out there."""
        kept = mistake.cases.get(number)
        if kept is None:
            return verdict.right
        if "trouble" in kept or verdict.right:
            return False
        scales = scales_of(exercise, given(problem))
        for name, got in verdict.outputs.items():
            if not _near(int(verdict.bad[name].sum()), kept["wrong"][name]):
                return False
            at = self.cases[number].at[name]
            mistaken, unwritten = as_tensor(kept[name])
            scale = scales[name].reshape(-1)[at] if name in scales else None
            alike = is_mistaken(
                got.reshape(-1)[at], mistaken, scale, exercise.tolerance, case
            )
            before = verdict.untouched[name].reshape(-1)[at]
            if not bool(torch.where(unwritten, before, alike & ~before).all()):
                return False
        return True

    def hold(
        self, number: int, exercise: Exercise, case: Case, problem: Problem
    ) -> bool:
        """Say whether a case's values are still those that the prints were made with.

        Another version of torch may draw others: then the prints say nothing.
        """
        if number >= len(self.cases) or self.cases[number].name != case.name:
            return False
        places = self.cases[number]
        if exercise.reference is withheld:
            return True
        reference = exercise.reference(given(problem))
        return all(
            bool(
                torch.isclose(
                    places.answer[name],
                    reference[name].double().reshape(-1)[at],
                    rtol=_SAME,
                    equal_nan=True,
                ).all()
            )
            for name, at in places.at.items()
        )


def judge_by_print(
    exercise: Exercise, number: int, problem: Problem, data: Mapping[str, bytes]
) -> Verdict:
    """Compare a function's outputs with the answer's print, which has all of them.

    Args:
        exercise: whose reference is withheld.
        number: of the public case.
        problem: its values.
        data: the bytes of each output.
    """
    prints = prints_of(exercise)
    if prints is None or number >= len(prints.cases):
        raise InfrastructureError(f"{exercise.id} has neither reference nor print")
    kept = prints.cases[number]
    outputs: dict[str, torch.Tensor] = {}
    bad: dict[str, torch.Tensor] = {}
    for name, out in problem.outputs.items():
        got = outputs[name] = from_bytes(data[name], out.dtype, out.shape)
        right, within = (
            part[name].reshape(out.shape) for part in (kept.answer, kept.within)
        )
        near = (got.double() - right).abs() <= within
        same = (got == right.to(got.dtype)) | (got.isnan() & right.isnan())
        bad[name] = ~(near & got.isfinite() & right.isfinite() | same)
    untouched = {name: torch.zeros_like(where) for name, where in bad.items()}
    first = next((name for name, where in bad.items() if bool(where.any())), None)
    wrong = first and first_wrong(
        first, outputs[first], kept.answer[first], bad[first], untouched[first]
    )
    return Verdict(wrong or None, outputs, bad, untouched)


def path_of(exercise: Exercise) -> Path:
    """Return where an exercise's prints are kept, whether there are any or not."""
    return EXERCISES / exercise.stem / "prints" / f"{exercise.id}.json"


def prints_of(exercise: Exercise) -> Prints | None:
    """Return an exercise's prints; ``None`` where there are none."""
    path = path_of(exercise)
    return _read(path, path.stat().st_mtime_ns) if path.exists() else None


@cache
def _read(path: Path, changed: int) -> Prints:
    """Read a file of prints, again where it has changed."""
    return parse(path.read_text(encoding="utf-8"))


def parse(text: str) -> Prints:
    """Read the text of a file of prints."""
    kept = json.loads(text)
    return Prints(
        kept["made_of"],
        tuple(
            Places(
                case["name"],
                {
                    n: torch.tensor(at, dtype=torch.int64)
                    for n, at in case["at"].items()
                },
                *(
                    {n: as_tensor(values)[0] for n, values in case[key].items()}
                    for key in ("answer", "within")
                ),
            )
            for case in kept["cases"]
        ),
        tuple(
            Print(
                name,
                one["says"],
                {int(number): case for number, case in one["cases"].items()},
                one.get("needs", ""),
                one.get("lacks", ""),
            )
            for name, one in kept["mistakes"].items()
        ),
    )


def as_tensor(values: list[Number]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return kept values in float64, and which of them nobody wrote."""
    unwritten = torch.tensor([v == UNWRITTEN for v in values], dtype=torch.bool)
    numbers = [math.nan if v == UNWRITTEN else float(v) for v in values]
    return torch.tensor(numbers, dtype=torch.float64), unwritten


def _near(count: int, kept: int) -> bool:
    return abs(count - kept) <= max(_COUNT_APART, _SHARE_APART * max(count, kept))
