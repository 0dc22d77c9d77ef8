"""Grade a class: every file of a folder is a line of one table.

Submissions are graded side by side, one a judge. One that cannot be read is one line
and stops no other. What was graded from the same seed, with the same exercises and from
the same notebooks, byte for byte, is not graded again: a run that was ended goes on
where it was.
"""

from __future__ import annotations

import csv
import io
import json
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autograder.classroom.handed_in import (
    HandedIn,
    NotGradable,
    is_submission,
    opened,
)
from autograder.exercise import Exercise
from autograder.grade import GRADE, grade, write_atomically
from autograder.judge.judge import Judge
from autograder.judge.pool import Idle
from autograder.judge.words import clean
from autograder.report.table import Progress

TABLE = "class.csv"
# Beside each report: the digest of the notebooks that it is about.
DIGEST = "handed-in.sha256"
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


def submissions(folder: Path, out: Path) -> list[Path]:
    """List all that lies in a class's folder, whether it can be graded or not.

    Raises:
        ValueError: the folder is none, nothing in it can be graded, or the grades
            would be written among what was handed in.
    """
    if not folder.is_dir():
        raise ValueError(
            f"{folder}: no such folder. Name one that holds a folder, an .ipynb file "
            "or a .zip archive for each submission."
        )
    if out.resolve().is_relative_to(folder.resolve()):
        raise ValueError(
            f"OUT={out} lies in the class's folder {folder}, where a student may have "
            "put a grade already. Name a folder outside of it."
        )
    found = sorted(folder.iterdir())
    if not any(map(is_submission, found)):
        raise ValueError(
            f"{folder}: no folder, no .ipynb file and no .zip archive is in it."
        )
    return found


def grade_class(
    folder: Path,
    exercises: Sequence[Exercise],
    judges: Sequence[Judge],
    out: Path,
    say: Callable[[Graded], None],
) -> list[Graded]:
    """Grade all that is in a folder; the table is written after each submission.

    Args:
        folder: holds what was handed in.
        exercises: those that are graded.
        judges: of one seed; each grades one submission at a time.
        out: where reports and the table are written; outside of ``folder``.
        say: told of each line as it is known, which is in no order.
    """
    paths = submissions(folder, out)
    out.mkdir(parents=True, exist_ok=True)
    rows: dict[int, Graded] = {}
    idle = Idle(judges)
    stopped = threading.Event()

    def graded(path: Path) -> Graded:
        with idle.borrowed() as judge:
            return _line(path, exercises, judge, out / path.name, stopped)

    with ThreadPoolExecutor(len(judges)) as pool:
        begun = {pool.submit(graded, path): at for at, path in enumerate(paths)}
        try:
            for done in as_completed(begun):
                row = rows[begun[done]] = done.result()
                known = [rows[at] for at in sorted(rows)]
                write_atomically(out / TABLE, table(known, exercises))
                say(row)
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [rows[at] for at in sorted(rows)]


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
    # Blank for blank: two names that differ in one are two students.
    text = re.sub(r"\s", " ", clean(text, 500))
    return f"'{text}" if text.startswith(_FORMULA) else text


class _Stopped(Exception):
    """Others have ended the run."""


class _Silent(Progress):
    """Says nothing, and ends a submission before its next exercise."""

    def __init__(self, stopped: threading.Event) -> None:
        super().__init__(0, io.StringIO())
        self._stopped = stopped

    def begin(self, name: str) -> None:
        if self._stopped.is_set():
            raise _Stopped
        super().begin(name)


def _line(
    path: Path,
    exercises: Sequence[Exercise],
    judge: Judge,
    out: Path,
    stopped: threading.Event,
) -> Graded:
    """Grade what a path holds, or say why it is not."""
    if not is_submission(path):
        said = "ignored: no folder, no notebook (.ipynb) and no .zip archive"
        return Graded(path.name, trouble=said)
    if path.name == TABLE:
        said = f"rename it: the table of grades is called {TABLE}"
        return Graded(path.name, trouble=said)
    try:
        with opened(path) as handed_in:
            row = _again(handed_in, exercises, judge.seed, out)
            if row is None:
                (out / DIGEST).unlink(missing_ok=True)
                record = grade(
                    handed_in.submission, exercises, judge, out, _Silent(stopped)
                )
                write_atomically(out / DIGEST, handed_in.digest)
                row = _row(handed_in, record.to_json())
            return row
    except NotGradable as error:
        return Graded(path.name, trouble=str(error))
    except Exception as error:  # of this one: the others are graded
        said = f"{type(error).__name__}: {error}"
        return Graded(path.name, trouble=said, failed=True)


def _row(handed_in: HandedIn, record: dict[str, Any]) -> Graded:
    results = record["results"]
    failed = [r["exercise"] for r in results if r["status"] == "infrastructure error"]
    said = [f"not graded: {', '.join(failed)}"] if failed else []
    if results and all(result["words"] == "no answer" for result in results):
        said = [results[0]["message"]]
    return Graded(
        handed_in.submission.name,
        record["earned"],
        record["possible"],
        record["points"],
        "; ".join([*said, *handed_in.notes]),
        bool(failed),
        {result["exercise"]: result["earned"] for result in results},
    )


def _again(
    handed_in: HandedIn, exercises: Sequence[Exercise], seed: int, out: Path
) -> Graded | None:
    """Read what an earlier run has found; None where it must be graded (again)."""
    try:
        record = json.loads((out / GRADE).read_text())
        same = [r["exercise"] for r in record["results"]] == [e.id for e in exercises]
        same &= (out / DIGEST).read_text() == handed_in.digest
        if record["complete"] and record["seed"] == seed and same:
            row = _row(handed_in, record)
            return None if row.failed else row
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None
