"""Grade a class: each submission of a folder, one after the other, into one table.

One submission that cannot be read is one line of the table and stops no other. What was
graded from the same seed, with the same exercises, and was not handed in anew since, is
not graded again: a run that was ended goes on where it was.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autograder.exercise import Exercise
from autograder.grade import GRADE, grade, write_atomically
from autograder.judge.judge import Judge
from autograder.judge.words import clean
from autograder.submission.submitted import Submission, open_submission

TABLE = "class.csv"
# What a spreadsheet takes for a formula when a cell begins with it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Graded:
    """One submission's line of the table; ``failed`` where the grader itself did."""

    name: str
    earned: float = 0.0
    possible: float = 0.0
    points: float = 0.0
    trouble: str = ""
    failed: bool = False
    exercises: dict[str, float] = field(default_factory=dict)


def submissions(folder: Path) -> list[Path]:
    """List what was handed in: folders with notebooks, and single notebooks.

    Raises:
        ValueError: the folder is none, or there is nothing in it.
    """
    if not folder.is_dir():
        raise ValueError(
            f"{folder}: no such folder. Name one that holds a folder or an .ipynb file "
            "for each submission."
        )
    found = [
        path
        for path in sorted(folder.iterdir())
        if not path.name.startswith(".") and (path.is_dir() or path.suffix == ".ipynb")
    ]
    if not found:
        raise ValueError(f"{folder}: no folder and no .ipynb file is in it.")
    return found


def grade_class(
    folder: Path,
    exercises: Sequence[Exercise],
    judge: Judge,
    out: Path,
    say: Callable[[Graded], None],
) -> list[Graded]:
    """Grade all that is in a folder; the table is written after each submission."""
    rows: list[Graded] = []
    for path in submissions(folder):
        row = _again(path, exercises, judge.seed, out / path.name)
        if row is None:
            try:
                row = _graded(path, exercises, judge, out / path.name)
            except Exception as error:  # of this one: the others are graded
                said = f"{type(error).__name__}: {error}"
                row = Graded(path.name, trouble=said, failed=True)
        rows.append(row)
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / TABLE, table(rows, exercises))
        say(row)
    return rows


def table(rows: Sequence[Graded], exercises: Sequence[Exercise]) -> str:
    """Return the rows as comma-separated values, a column for each exercise."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    ids = [exercise.id for exercise in exercises]
    writer.writerow(["submission", "earned", "possible", "points", *ids, "trouble"])
    for row in rows:
        each = [row.exercises.get(name, "") for name in ids]
        first = [_cell(row.name), row.earned, row.possible, row.points]
        writer.writerow([*first, *each, _cell(row.trouble)])
    return text.getvalue()


def _cell(text: str) -> str:
    text = " ".join(clean(text, 500).split())
    return f"'{text}" if text.startswith(_FORMULA) else text


def _graded(
    path: Path, exercises: Sequence[Exercise], judge: Judge, out: Path
) -> Graded:
    try:
        submission = _open(path)
    except ValueError as error:
        return Graded(path.name, trouble=str(error))
    record = grade(submission, exercises, judge, out)
    return _row(path.name, record.to_json())


def _open(path: Path) -> Submission:
    """Open a submission, or the chapters in it where it is a whole checkout."""
    inside = path / "chapters"
    return open_submission(str(inside if inside.is_dir() else path))


def _row(name: str, record: dict[str, Any]) -> Graded:
    results = record["results"]
    failed = [r["exercise"] for r in results if r["status"] == "infrastructure error"]
    trouble = f"not graded: {', '.join(failed)}" if failed else ""
    if results and all(result["words"] == "no answer" for result in results):
        trouble = results[0]["message"]
    return Graded(
        name,
        record["earned"],
        record["possible"],
        record["points"],
        trouble,
        bool(failed),
        {result["exercise"]: result["earned"] for result in results},
    )


def _again(
    path: Path, exercises: Sequence[Exercise], seed: int, out: Path
) -> Graded | None:
    """Read what an earlier run has found; None where it must be graded (again)."""
    try:
        written = (out / GRADE).stat().st_mtime
        record = json.loads((out / GRADE).read_text())
        same = [r["exercise"] for r in record["results"]] == [e.id for e in exercises]
        handed_in = [path, *path.rglob("*.ipynb")] if path.is_dir() else [path]
        older = all(each.stat().st_mtime < written for each in handed_in)
        if record["complete"] and record["seed"] == seed and same and older:
            row = _row(path.name, record)
            return None if row.failed else row
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None
