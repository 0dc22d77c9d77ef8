"""Grade a submission: every exercise, one after the other, written as it goes."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import tempfile
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch

from autograder.exercise import Exercise
from autograder.exercises import all_exercises
from autograder.judge.judge import Judge
from autograder.judge.results import Record
from autograder.report.gradescope import results_json
from autograder.report.html import html_report
from autograder.report.table import Progress
from autograder.submission.submitted import Submission
from autograder.worker import landlock

GRADE, GRADESCOPE, REPORT = "grade.json", "results.json", "report.html"


def select(only: Sequence[str], submission: Submission) -> list[Exercise]:
    """Return the exercises to grade, in the order of the course.

    Args:
        only: ids, stems, or ``stem/id`` where both have one name, apart or in one text
            with commas or spaces between; none for all.
        submission: what it does not cover is left out, unless it was asked for.

    Raises:
        ValueError: a name that is no exercise and no chapter.
    """
    every = list(all_exercises().values())
    names = [name for text in only for name in re.split(r"[,\s]+", text) if name]
    if not names:
        return [e for e in every if submission.covers(e)]
    # A chapter may be called as its notebook is.
    wanted = {re.sub(r"^\d+_", "", name) for name in names}
    known = set().union(*map(_names, every))
    for name in sorted(wanted - known):
        raise ValueError(_unknown(name, every))
    return [e for e in every if _names(e) & wanted]


def _unknown(name: str, every: Sequence[Exercise]) -> str:
    """Say what is called nearly so, or else what there is."""
    ids, stems = [e.id for e in every], list(dict.fromkeys(e.stem for e in every))
    words = f"ONLY={name}: no exercise and no chapter is called so."
    if near := get_close_matches(name, dict.fromkeys([*ids, *stems])):
        return f"{words} Is {' or '.join(near)} meant?"
    return f"{words} Exercises: {', '.join(ids)}. Chapters: {', '.join(stems)}."


def _names(exercise: Exercise) -> set[str]:
    return {exercise.id, exercise.stem, f"{exercise.stem}/{exercise.id}"}


def grade(
    submission: Submission,
    exercises: Sequence[Exercise],
    judge: Judge,
    out: Path,
    progress: Progress | None = None,
) -> Record:
    """Grade and write every report after each exercise: nothing done is lost."""
    out.mkdir(parents=True, exist_ok=True)
    record = _record(submission, judge)
    judge.server.start()
    notes = record.notes
    _write(out, record)
    for exercise in exercises:
        if progress:
            progress.begin(exercise.id)
        result = judge.grade(exercise, submission, progress.step if progress else None)
        record.results.append(result)
        record.notes = [*notes, *judge.misfits()]
        _write(out, record)
        if progress:
            progress.end(result)
    record.finished = _now()
    _write(out, record)
    return record


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or what was there before.

    What stands at ``path`` is replaced, never followed: a link that leads elsewhere
    becomes a plain file.
    """
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(scratch, 0o644)
        os.replace(scratch, path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def _write(out: Path, record: Record) -> None:
    write_atomically(out / GRADE, _dump(record.to_json()))
    write_atomically(out / GRADESCOPE, _dump(results_json(record)))
    write_atomically(out / REPORT, html_report(record))


def _dump(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=1, allow_nan=False, default=str) + "\n"


def _record(submission: Submission, judge: Judge) -> Record:
    tier = judge.server.tier
    notes = []
    if not tier.trusted:
        notes.append(
            "this machine offers no sandbox: the grade is for the learner's own use, "
            "not trusted"
        )
    return Record(
        submission=submission.name,
        seed=judge.seed,
        device=_device(judge.device),
        backend="gpu" if judge.device == "cuda" else "emulator",
        sandbox={
            "name": tier.name,
            "trusted": tier.trusted,
            "detail": tier.detail,
            "words": tier.words,
            "landlock": landlock.version(),
        },
        versions={
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "kernelwright": _version(),
        },
        started=_now(),
        notes=notes,
    )


def _device(device: str) -> str:
    """Name the machine, without a word of what it can do."""
    if device == "cuda":
        try:
            import kernelwright as kw

            return str(kw.device().name)
        except Exception:  # a name is not worth failing a grade for
            return "NVIDIA GPU"
    cores = len(os.sched_getaffinity(0))
    return f"CPU ({platform.machine()}, {cores} cores), emulated; no GPU was used"


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kernelwright")
    except PackageNotFoundError:
        return "from the checkout"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
