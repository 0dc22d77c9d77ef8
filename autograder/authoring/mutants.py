"""Generic mutants: the answer with one small mistake that nobody thought of.

Each is rejected, or stands in the exercise's file of mistakes under what it has no
effect on::

    [equivalent]
    'if (n > 0) { -> if (n >= 0) {' = "Of no elements there is nothing to do."

The key is the edit: the lines that it changes, before and after. Lines that stand in
the answer several times are numbered, `` (2)`` from the second on.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autograder.authoring.mistakes import EQUIVALENT, MistakeError, record_of
from autograder.authoring.mutate_cuda import cuda_edits
from autograder.authoring.mutate_python import python_edits
from autograder.exercise import Exercise
from autograder.regions import ROOT, cell_heading, read_region


@dataclass(frozen=True)
class Mutant:
    """An answer with one edit.

    Args:
        exercise: whose answer.
        kind: what sort of edit it is.
        name: which lines become which; unique among an exercise's mutants.
        line: of the cell, where the edit begins.
        cell: the whole exercise cell, heading included.
    """

    exercise: Exercise
    kind: str
    name: str
    line: int
    cell: str


@cache
def _mutants(exercise_id: str, path: Path, modified_ns: int) -> tuple[Mutant, ...]:
    from autograder.exercises import all_exercises

    exercise = all_exercises()[exercise_id]
    region = read_region(path, exercise_id)
    heading, text = cell_heading(exercise.language, exercise_id), region.text_solved
    edits = python_edits if exercise.language == "python" else cuda_edits
    made: dict[str, Mutant] = {}
    names: dict[str, int] = {}
    for edit in edits(text, region.filled):
        cell = f"{heading}{edit.made(text)}\n"
        if cell in made or edit.made(text) == text:
            continue
        name = edit.name(text)
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:
            name = f"{name} ({names[name]})"
        line = (heading + text[: edit.start]).count("\n") + 1
        made[cell] = Mutant(exercise, edit.kind, name, line, cell)
    return tuple(made.values())


def mutants(exercise: Exercise, root: Path = ROOT) -> tuple[Mutant, ...]:
    """Return an exercise's generic mutants, each text once."""
    path = root / exercise.source
    return _mutants(exercise.id, path, path.stat().st_mtime_ns)


def equivalent(exercise: Exercise, root: Path = ROOT) -> dict[str, str] | None:
    """Return the mutants that are said to be right, each with the reason.

    Returns:
        ``None`` where the exercise's file has no such table: nobody has looked.

    Raises:
        MistakeError: a reason is empty, or there is no such mutant.
    """
    path = record_of(exercise, root)
    if not path.exists():
        return None
    table = tomllib.loads(path.read_text()).get(EQUIVALENT)
    if table is None:
        return None
    known = {mutant.name for mutant in mutants(exercise, root)}
    for name, reason in table.items():
        if not isinstance(reason, str) or not reason.strip():
            raise MistakeError(f"{path}: [equivalent] '{name}' wants its reason")
        if name not in known:
            raise MistakeError(
                f"{path}: [equivalent] there is no such mutant of {exercise.id} (any "
                f"more): '{name}'. Take the line out, or copy the name: the whole text "
                f"'old -> new' that `make mutants ONLY={exercise.id}` prints."
            )
    return dict(table)
