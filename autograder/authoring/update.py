"""A learner's work carried over into a newer edition of a notebook."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograder.authoring.chapters import exercise_of
from autograder.authoring.notebooks import (
    Edition,
    Notebook,
    as_text,
    build_notebook,
    state_of,
    with_stubs,
)
from kernelwright.cache import digest


@dataclass(frozen=True)
class Updated:
    """What ``update`` did with one notebook.

    Args:
        path: the notebook.
        carried: exercises whose cell was the learner's and was kept.
        orphans: exercises of the learner's that the new edition no longer has.
        own_cells: how many other cells only the copy holds: changed or added by
            the learner, or older text.
        copy: where the notebook as it was now lies; ``None`` where nothing of the
            learner's was in it.
        problem: why the notebook was left alone, empty where it was not.
    """

    path: Path
    carried: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()
    own_cells: int = 0
    copy: Path | None = None
    problem: str = ""


def learners_cells(notebook: Notebook) -> dict[str, str]:
    """Return the sources of the exercise cells that were worked on, by exercise.

    A cell is known by its metadata, or by its first comment where a tool dropped
    the metadata. Of two cells for one exercise the last one counts.
    """
    found: dict[str, str] = {}
    for cell in notebook.get("cells", []):
        if cell.get("cell_type") != "code":
            continue
        source = _text(cell)
        marks = cell.get("metadata", {}).get("kernelwright", {})
        exercise = marks.get("exercise") or exercise_of(source)
        if exercise and digest(source.rstrip("\n")) != marks.get("stub"):
            found[str(exercise)] = source
    return found


def _text(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)


def update_notebook(chapter: Path, edition: Edition) -> Updated:
    """Write the newest edition of a chapter's notebook, with the learner's answers.

    The notebook as it was is copied into ``chapters/earlier`` first, whenever it
    holds anything of the learner's.
    """
    target = chapter.with_suffix(".ipynb")
    text = with_stubs(chapter.read_text(encoding="utf-8"), chapter, edition)
    fresh = build_notebook(text, chapter, edition)
    state = state_of(target)
    if state in ("absent", "ours"):
        target.write_text(as_text(fresh), encoding="utf-8")
        return Updated(target)
    try:
        old = json.loads(target.read_text(encoding="utf-8"))
        mine = learners_cells(old)
        own = _own_cells(old, fresh)
    except (ValueError, AttributeError, TypeError) as error:
        return Updated(
            target,
            problem=f"is not a notebook ({error}); move it away and run this again",
        )
    copy = _copy_aside(target)
    carried = []
    for cell in fresh["cells"]:
        exercise = cell["metadata"].get("kernelwright", {}).get("exercise")
        if exercise in mine:
            cell["source"] = mine[exercise].splitlines(keepends=True)
            carried.append(exercise)
    target.write_text(as_text(fresh), encoding="utf-8")
    orphans = tuple(exercise for exercise in mine if exercise not in carried)
    return Updated(target, tuple(carried), orphans, own, copy)


def _own_cells(old: Notebook, fresh: Notebook) -> int:
    """Count cells, exercises apart, that the generated notebook does not have."""
    ours = {_text(cell).rstrip("\n") for cell in fresh["cells"]}
    others = (
        _text(cell).rstrip("\n")
        for cell in old["cells"]
        if not exercise_of(_text(cell))
    )
    return sum(1 for source in others if source.strip() and source not in ours)


def _copy_aside(path: Path) -> Path:
    folder = path.parent / "earlier"
    folder.mkdir(exist_ok=True)
    number = 1
    while (target := folder / f"{path.stem}.{number}.ipynb").exists():
        number += 1
    target.write_bytes(path.read_bytes())
    return target
