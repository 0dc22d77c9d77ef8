"""Wrong answers: what a learner may get wrong, and the message that it must earn.

Most are the right answer with an edit. They stand together, an exercise a file,
``autograder/wrong/<stem>/<exercise>.toml``::

    [guard_missing]
    expect = "it writes outside of out, past its last element"
    edits = [['if (i < n) out[i] = x[i];', 'out[i] = x[i];']]

Each edit's old text stands in the answer once; edits are made in their order. An answer
that goes another way altogether is a file, ``wrong/<stem>/<exercise>/<name>.cu`` or
``.py``, whose first line is ``// expect: …`` or ``# expect: …``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograder.authoring.regions import ROOT, cell_heading, cell_source
from autograder.exercise import Exercise

WRONG = "autograder/wrong"
_ENDINGS = {"cuda": ".cu", "python": ".py"}


class MistakeError(Exception):
    """A wrong answer cannot be made from what is written down."""


@dataclass(frozen=True)
class Mistake:
    """A wrong answer.

    Args:
        name: what is wrong, in a few words with underscores.
        expect: part of the message that it must earn.
        cell: the whole exercise cell, heading included.
    """

    name: str
    expect: str
    cell: str


def mistakes(exercise: Exercise, root: Path = ROOT) -> list[Mistake]:
    """Return an exercise's wrong answers, by name.

    Raises:
        MistakeError: one cannot be read, or its edits do not fit the answer; the
            message names the file and the mend.
    """
    folder = root / WRONG / exercise.stem
    found = [
        *_edited(folder / f"{exercise.id}.toml", exercise, root),
        *_whole(folder / exercise.id, exercise),
    ]
    names = [one.name for one in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise MistakeError(f"{folder}: {exercise.id} has two of {', '.join(twice)}")
    return sorted(found, key=lambda one: one.name)


def _edited(path: Path, exercise: Exercise, root: Path) -> Iterator[Mistake]:
    if not path.exists():
        return
    right = cell_source(exercise, solved=True, root=root) + "\n"
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise MistakeError(f"{path}: {error}") from error
    for name, table in tables.items():
        unknown = table.keys() ^ {"expect", "edits"}
        if unknown or not table["expect"].strip() or not table["edits"]:
            raise MistakeError(
                f"{path}: [{name}] wants an expect and at least one edit, nothing else"
            )
        cell = right
        for old, new in table["edits"]:
            if cell.count(old) != 1:
                raise MistakeError(
                    f"{path}: [{name}] this stands {cell.count(old)} times in the "
                    f"answer of {exercise.id}, wanted once (quote more of what is "
                    f"around it, or what stands there now):\n{old}"
                )
            cell = cell.replace(old, new)
        yield Mistake(name, table["expect"].strip(), cell)


def _whole(folder: Path, exercise: Exercise) -> Iterator[Mistake]:
    for path in folder.glob(f"*{_ENDINGS[exercise.language]}"):
        first, _, code = path.read_text().partition("\n")
        sign, _, words = first.partition(" expect: ")
        if sign not in ("//", "#") or not words.strip():
            raise MistakeError(f"{path}: begin with '// expect: …' or '# expect: …'")
        heading = cell_heading(exercise.language, exercise.id)
        yield Mistake(path.stem, words.strip(), heading + code)
