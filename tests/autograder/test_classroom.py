"""A class's submissions: one table, whatever one of them is."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest
from small_exercises import AFTER, RIGHT, TWICE, python_cell, write_notebook

from autograder import exercises
from autograder.classroom.grade_class import Graded, grade_class, submissions, table
from autograder.judge.judge import Judge

EXERCISES = [TWICE, AFTER]
HOSTILE = "import os\nos.kill(-1, 9)\nos._exit(0)"


@pytest.fixture
def handed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a class hands in: right, hostile, broken, empty, a checkout, one file."""
    every = {exercise.id: exercise for exercise in EXERCISES}
    monkeypatch.setattr(exercises, "all_exercises", lambda: every)
    folder = tmp_path / "handed-in"
    right = [RIGHT.format(name=name) for name in ("twice", "after")]
    for name, cells in (
        ("=ada", right),
        ("bob", [python_cell(HOSTILE), right[1]]),
        ("dan/chapters", right),
    ):
        (folder / name).mkdir(parents=True)
        write_notebook(folder / name / "01_small.ipynb", cells)
    (folder / "cyd").mkdir()
    (folder / "cyd" / "01_small.ipynb").write_text('{"cells": [')
    (folder / "eve").mkdir()
    (folder / "notes.txt").write_text("not handed in")
    write_notebook(folder / "fay.ipynb", right[:1])
    return folder


def test_each_is_a_line_and_stops_no_other(
    judge: Judge, handed_in: Path, tmp_path: Path
) -> None:
    out, said = tmp_path / "grades", []
    grade_class(handed_in, EXERCISES, judge, out, said.append)
    rows = list(csv.reader((out / "class.csv").read_text().splitlines()))
    head = ["submission", "earned", "possible", "points", "twice", "after", "trouble"]
    assert rows[0] == head
    assert [row[:6] for row in rows[1:]] == [
        ["'=ada", "20.0", "20.0", "20.0", "10.0", "10.0"],
        ["bob", "10.0", "20.0", "20.0", "0.0", "10.0"],
        ["cyd", "0.0", "20.0", "20.0", "0.0", "0.0"],
        ["dan", "20.0", "20.0", "20.0", "10.0", "10.0"],
        ["eve", "0.0", "0.0", "0.0", "", ""],
        ["fay.ipynb", "10.0", "20.0", "20.0", "10.0", "0.0"],
    ]
    told = [row[6] for row in rows[1:]]
    assert [words != "" for words in told] == [False, False, True, False, True, False]
    assert "the file is cut off at line 1" in told[2]
    assert "no chapter's notebook is in this folder" in told[4]
    assert not any(row.failed for row in said)
    for name in ("=ada", "bob", "cyd", "dan", "fay.ipynb"):
        assert (out / name / "report.html").exists()
    assert [row.name for row in said] == [
        "=ada",
        "bob",
        "cyd",
        "dan",
        "eve",
        rows[6][0],
    ]


def test_a_run_that_was_ended_goes_on(
    judge: Judge, handed_in: Path, tmp_path: Path
) -> None:
    def marked(name: str) -> bool:
        return "mark" in json.loads((tmp_path / name / "grade.json").read_text())

    grade_class(handed_in, EXERCISES, judge, tmp_path, lambda row: None)
    names = ("=ada", "bob", "cyd", "dan")
    for name in names:
        path = tmp_path / name / "grade.json"
        record = {**json.loads(path.read_text()), "mark": 1}
        if name == "bob":
            record["complete"] = False
        if name == "cyd":
            record["seed"] += 1
        path.write_text(json.dumps(record))
    later = handed_in / "dan" / "chapters" / "01_small.ipynb"
    os.utime(later, (4e9, 4e9))
    rows = grade_class(handed_in, EXERCISES, judge, tmp_path, lambda row: None)
    # Only the first is read again; the others were not whole, or are no longer that.
    assert [marked(name) for name in names] == [True, False, False, False]
    assert [row.earned for row in rows] == [20.0, 10.0, 0.0, 20.0, 0.0, 10.0]


def test_a_failure_of_the_graders_is_one_line(
    judge: Judge, handed_in: Path, tmp_path: Path
) -> None:
    (tmp_path / "grades").mkdir()
    (tmp_path / "grades" / "bob").write_text("in the way")
    rows = grade_class(handed_in, [TWICE], judge, tmp_path / "grades", lambda row: None)
    assert [row.earned for row in rows] == [10.0, 0.0, 0.0, 10.0, 0.0, 10.0]
    assert [row.failed for row in rows] == [False, True, False, False, False, False]
    assert "FileExistsError" in rows[1].trouble


def test_no_cell_of_the_table_is_a_formula_or_a_line_of_its_own() -> None:
    text = table([Graded("@a,b\n=1", trouble="-x\x1b[2J\ny")], [])
    assert text.splitlines()[1] == "\"'@a,b =1\",0.0,0.0,0.0,'-x y"


def test_nothing_to_grade_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such folder"):
        submissions(tmp_path / "gone")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ValueError, match=r"no folder and no \.ipynb file"):
        submissions(tmp_path)
