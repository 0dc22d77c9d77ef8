"""The exercises of the course, one folder a chapter, found by its stem."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from autograder.exercise import Exercise

_CHAPTERS = Path(__file__).resolve().parents[2] / "chapters"


def chapter(package: str, *exercises: Exercise) -> tuple[Exercise, ...]:
    """Return a chapter's exercises with their stem and what its ``hidden.py`` holds.

    ``HIDDEN`` there has what an exercise's declaration leaves out, by exercise: what
    draws its ``hidden`` cases; the ``reference``, and the ``tolerance`` that is made of
    it, where they would give the answer away. A release leaves the file out.

    Args:
        package: the chapter's, whose last name is the stem.
        exercises: in the order of the chapter.
    """
    stem = package.rpartition(".")[2]
    fields: dict[str, dict[str, Any]] = {}
    if importlib.util.find_spec(f"{package}.hidden") is not None:
        fields = importlib.import_module(f"{package}.hidden").HIDDEN
        known = {exercise.id for exercise in exercises}
        if fields.keys() != known:
            odd = ", ".join(sorted(fields.keys() ^ known))
            raise ValueError(
                f"{package}: {odd} is in EXERCISES or in hidden.py; wanted in both: "
                'there as HIDDEN = {"<id>": {"hidden": <what draws cases>}, …}'
            )
    return tuple(replace(one, stem=stem, **fields.get(one.id, {})) for one in exercises)


@cache
def all_exercises() -> dict[str, Exercise]:
    """Return every exercise by its id, in the order of the course."""
    found: dict[str, Exercise] = {}
    stems = [module.name for module in pkgutil.iter_modules(__path__) if module.ispkg]
    for stem in sorted(stems, key=_place):
        chapter = importlib.import_module(f"{__name__}.{stem}")
        for exercise in chapter.EXERCISES:
            if exercise.id in found:
                raise ValueError(f"two exercises are called {exercise.id!r}")
            found[exercise.id] = exercise
    return found


def _place(stem: str) -> tuple[str, str]:
    """Put chapters in the order of their numbers, which only their files carry."""
    files = sorted(_CHAPTERS.glob(f"[0-9][0-9]_{stem}.*"))
    # One that is not written yet, or an installed package: behind, by name.
    return (files[0].name[:2] if files else "99", stem)
