"""The exercises of the course, one module a chapter, found by their stem."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path

from autograder.exercise import Exercise

_CHAPTERS = Path(__file__).resolve().parents[2] / "chapters"


@cache
def all_exercises() -> dict[str, Exercise]:
    """Return every exercise by its id, in the order of the course."""
    found: dict[str, Exercise] = {}
    # What begins with a line is a part of a chapter, not one of its own.
    stems = [m.name for m in pkgutil.iter_modules(__path__) if m.name[0] != "_"]
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
