"""The exercises of the course, one module a chapter, found by their stem."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from autograder.exercise import Exercise


@cache
def all_exercises() -> dict[str, Exercise]:
    """Return every exercise by its id, in the order of the course."""
    found: dict[str, Exercise] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        if module.name.startswith("_"):
            continue  # a part of a chapter, not one of its own
        chapter = importlib.import_module(f"{__name__}.{module.name}")
        for exercise in chapter.EXERCISES:
            if exercise.id in found:
                raise ValueError(f"two exercises are called {exercise.id!r}")
            found[exercise.id] = exercise
    return found
