"""Mistakes: an edit of the right answer and the sentence that it earns, written once.

Those of an exercise stand in ``autograder/exercises/<stem>/<exercise>.toml``::

    [guard_too_tight]
    says = "Only the last element is missing: the test is i < n."
    edits = [['if (i < n)', 'if (i < n - 1)']]

    ["share_of_{lanes}"]                # a family: one record, several values
    lanes = [16, 32]
    says = "Each sum stops after {lanes} lanes."
    edits = [['lanes < 64', 'lanes < {lanes}']]

Each edit's old text stands in the answer once; edits are made in their order. Further
keys, none of which must be there:

``gate``
    ``sound``, ``compiles``, ``structure``, ``counts`` or ``right``: what rejects it by
    a message of its own, of which ``says`` is a part. Such a mistake has no print.
``like``
    another mistake, whose sentence this one earns as well, in place of ``says``.
``needs``, ``lacks``
    regular expressions: what a learner's code holds, or not, where it is said.

The table ``[equivalent]`` is no mistake: it lists mutants that are as right as the
answer.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograder.exercise import Exercise
from autograder.regions import ROOT, cell_source

RECORDS = "autograder/exercises"
EQUIVALENT = "equivalent"
_KEYS = {"says", "like", "edits", "gate", "needs", "lacks"}
_GATES = ("sound", "compiles", "structure", "counts", "right")


class MistakeError(Exception):
    """A wrong answer cannot be made from what is written down."""


@dataclass(frozen=True)
class Mistake:
    """A wrong answer.

    Args:
        name: what is wrong, in a few words with underscores.
        says: the sentence that it earns; with a gate, part of that gate's message.
        cell: the whole exercise cell, heading included.
        gate: what rejects it by a message of its own; '' where its print is known.
        needs, lacks: what a learner's code must hold, or not, where it is said.
    """

    name: str
    says: str
    cell: str
    gate: str = ""
    needs: str = ""
    lacks: str = ""


def record_of(exercise: Exercise, root: Path = ROOT) -> Path:
    """Return where an exercise's mistakes stand."""
    return root / RECORDS / exercise.stem / f"{exercise.id}.toml"


def mistakes(exercise: Exercise, root: Path = ROOT) -> list[Mistake]:
    """Return an exercise's wrong answers, by name.

    Raises:
        MistakeError: one cannot be read, or its edits do not fit the answer; the
            message names the file and the mend.
    """
    path = record_of(exercise, root)
    found = list(_recorded(path, exercise, root)) if path.exists() else []
    names = [one.name for one in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise MistakeError(f"{path}: {exercise.id} has two of {', '.join(twice)}")
    return sorted(found, key=lambda one: one.name)


def _tables(path: Path) -> dict[str, Any]:
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise MistakeError(f"{path}: {error}") from error
    tables.pop(EQUIVALENT, None)
    return tables


def _recorded(path: Path, exercise: Exercise, root: Path) -> Iterator[Mistake]:
    right = cell_source(exercise, solved=True, root=root) + "\n"
    tables = _tables(path)
    for heading, table in tables.items():
        other = tables.get(table.get("like", ""), {})
        says = table.get("says", other.get("says", ""))
        gate = table.get("gate", other.get("gate", ""))
        if ("says" in table) == ("like" in table) or not says.strip():
            raise MistakeError(
                f"{path}: [{heading}] wants `says`, or `like` with the name of a "
                "mistake that has it"
            )
        if gate and gate not in _GATES:
            raise MistakeError(
                f"{path}: [{heading}] gate is {gate!r}; wanted {', '.join(_GATES)}"
            )
        for values in _family(path, heading, table):

            def filled(text: str, values: dict[str, object] = values) -> str:
                for key, value in values.items():
                    text = text.replace(f"{{{key}}}", str(value))
                return text

            name = filled(heading)
            edits = [(filled(old), filled(new)) for old, new in table.get("edits", ())]
            cell = _edited(path, name, exercise, right, edits)
            premises = (
                table.get(key, other.get(key, "")) for key in ("needs", "lacks")
            )
            yield Mistake(
                name, " ".join(filled(says).split()), cell, gate, *map(filled, premises)
            )


def _family(
    path: Path, heading: str, table: dict[str, Any]
) -> Iterator[dict[str, object]]:
    """Give the values of a family's members; nothing once for a single mistake."""
    lists = {key: table[key] for key in table.keys() - _KEYS}
    strays = sorted(
        key for key, values in lists.items() if not isinstance(values, list)
    )
    if strays or (lists and not any(f"{{{key}}}" in heading for key in lists)):
        raise MistakeError(
            f"{path}: [{heading}] has {', '.join(strays or lists)}; wanted "
            f"{', '.join(sorted(_KEYS))}, or lists of values, one of which stands in "
            "the name in braces"
        )
    for values in zip(*lists.values(), strict=True) if lists else ((),):
        yield dict(zip(lists, values, strict=True))


def _edited(
    path: Path, name: str, exercise: Exercise, right: str, edits: list[tuple[str, str]]
) -> str:
    """Make the edits of a mistake.

    Raises:
        MistakeError: there are none, or one's old text does not stand there once.
    """
    if not edits:
        raise MistakeError(f"{path}: [{name}] wants at least one edit")
    cell = right
    for old, new in edits:
        if cell.count(old) != 1:
            raise MistakeError(
                f"{path}: [{name}] this stands {cell.count(old)} times in the "
                f"answer of {exercise.id}, wanted once (quote more of what is "
                f"around it, or what stands there now):\n{old}"
            )
        cell = cell.replace(old, new)
    return cell
