"""A class's submissions: one table, whatever one of them is."""

from __future__ import annotations

import csv
import json
import os
import zipfile
from pathlib import Path

import pytest
from small_exercises import AFTER, RIGHT, SHORT, TWICE, python_cell, write_notebook

from autograder import exercises
from autograder.classroom.grade_class import Graded, grade_class, submissions, table
from autograder.classroom.progress import Progress
from autograder.judge.judge import Judge

EXERCISES = [TWICE, AFTER]
HOSTILE = "import os\nos.kill(-1, 9)\nos._exit(0)"
BOTH = [RIGHT.format(name=name) for name in ("twice", "after")]
WRONG = [python_cell("return x")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A class's folder with nothing in it, in a course of two exercises."""
    every = {exercise.id: exercise for exercise in EXERCISES}
    monkeypatch.setattr(exercises, "all_exercises", lambda: every)
    return tmp_path / "handed-in"


@pytest.fixture
def handed_in(folder: Path) -> Path:
    """What a class hands in: right, hostile, broken, empty, a checkout, one file."""
    _put(folder / "=ada/01_small.ipynb")
    _put(folder / "bob/01_small.ipynb", [python_cell(HOSTILE), BOTH[1]])
    _put(folder / "dan/chapters/01_small.ipynb")
    (folder / "cyd").mkdir()
    (folder / "cyd" / "01_small.ipynb").write_text('{"cells": [')
    (folder / "eve").mkdir()
    _put(folder / "fay.ipynb", BOTH[:1])
    (folder / "notes.txt").write_text("no notebook")
    return folder


def _put(path: Path, cells: list[str] = BOTH) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_notebook(path, cells)


def _graded(judge: Judge, folder: Path, out: Path) -> dict[str, Graded]:
    rows = grade_class(folder, EXERCISES, [judge], out, lambda row: None)
    assert sorted(path.name for path in folder.iterdir()) == [r.name for r in rows]
    return {row.name: row for row in rows}


def test_each_is_a_line_and_stops_no_other(
    judge: Judge, handed_in: Path, tmp_path: Path
) -> None:
    out, said = tmp_path / "grades", []
    grade_class(handed_in, EXERCISES, [judge], out, said.append)
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
        ["notes.txt", "0.0", "0.0", "0.0", "", ""],
    ]
    told = [row[6] for row in rows[1:]]
    assert [bool(words) for words in told] == [
        False,
        False,
        True,
        False,
        True,
        False,
        1,
    ]
    assert "the file is cut off at line 1" in told[2]
    assert "no notebook (.ipynb) was handed in" in told[4]
    assert told[6].startswith("ignored: no folder, no notebook")
    assert not any(row.failed for row in said)
    for name in ("=ada", "bob", "cyd", "dan", "fay.ipynb"):
        assert (out / name / "report.html").exists()
    assert [row.name for row in said] == sorted(p.name for p in handed_in.iterdir())


def test_whatever_a_notebook_is_wrapped_in_it_is_graded(
    judge: Judge, folder: Path, tmp_path: Path
) -> None:
    loose = _put(tmp_path / "loose.ipynb")
    folder.mkdir()
    with zipfile.ZipFile(folder / "ann.ZIP", "w") as archive:
        archive.write(loose, "../homework/01_small.ipynb")
        archive.write(loose, "__MACOSX/homework/._01_small.ipynb")
    _put(folder / "bea.IPYNB")
    _put(folder / "cem.ipynb.txt")
    _put(folder / "don/week 1/mine/01_small.ipynb")
    (folder / "ema").mkdir()
    (folder / "ann.ZIP").rename(folder / "ema" / "hw.zip")
    with zipfile.ZipFile(folder / "flo.zip", "w") as archive:
        archive.write(loose, "anything.ipynb")
    rows = _graded(judge, folder, tmp_path / "out")
    assert {row.earned for row in rows.values()} == {20.0}, rows
    assert not any(row.trouble for row in rows.values()), rows
    assert not (tmp_path / "homework").exists()


def test_what_was_not_read_is_said(judge: Judge, folder: Path, tmp_path: Path) -> None:
    _put(folder / "gus/01_small.ipynb")
    _put(folder / "gus/01_small (1).ipynb", WRONG)
    _put(folder / "hal/chapters/01_small.ipynb")
    _put(folder / "hal/old/01_small.ipynb", WRONG)
    (folder / "ida.zip").write_bytes(b"PK no archive")
    _put(folder / "jon/poem.ipynb", [])
    _put(folder / "jon/tale.ipynb", [])
    rows = _graded(judge, folder, tmp_path / "out")
    assert rows["gus"].earned == rows["hal"].earned == 20.0
    assert rows["gus"].trouble == "01_small (1).ipynb was not read"
    assert "old/01_small.ipynb was not read: there are two" in rows["hal"].trouble
    assert "ida.zip cannot be unpacked" in rows["ida.zip"].trouble
    assert "but poem.ipynb, tale.ipynb: wanted names such as" in rows["jon"].trouble


def test_links_lead_to_nobody_elses_work(
    judge: Judge, folder: Path, tmp_path: Path
) -> None:
    _put(folder / "kim/01_small.ipynb")
    (folder / "leo").mkdir()
    (folder / "leo/01_small.ipynb").symlink_to("../kim/01_small.ipynb")
    (folder / "mia").symlink_to("kim")
    (folder / "ned").mkdir()
    (folder / "ned/chapters").symlink_to("../kim")
    (folder / "oda.ipynb").symlink_to("kim/01_small.ipynb")
    os.mkfifo(folder / "pia.ipynb")
    rows = _graded(judge, folder, tmp_path / "out")
    assert [row.earned for row in rows.values()] == [20.0, 0, 0, 0, 0, 0]
    assert rows["mia"].trouble == "mia is a link: hand in the files themselves."
    assert "chapters is a link and was not followed" in rows["ned"].trouble
    assert "it is not a file" in rows["pia.ipynb"].trouble


def test_a_run_that_was_ended_goes_on(
    judge: Judge, handed_in: Path, tmp_path: Path
) -> None:
    def marked(name: str) -> bool:
        return "mark" in json.loads((tmp_path / name / "grade.json").read_text())

    _graded(judge, handed_in, tmp_path)
    names = ("=ada", "bob", "cyd", "dan")
    for name in names:
        path = tmp_path / name / "grade.json"
        record = {**json.loads(path.read_text()), "mark": 1}
        if name == "bob":
            record["complete"] = False
        if name == "cyd":
            record["seed"] += 1
        path.write_text(json.dumps(record))
    # A newer one may look older: an archive's files keep their dates.
    later = _put(handed_in / "dan" / "chapters" / "01_small.ipynb", BOTH[1:])
    os.utime(later, (1, 1))
    os.utime(handed_in / "=ada" / "01_small.ipynb", (4e9, 4e9))
    rows = _graded(judge, handed_in, tmp_path)
    # Only the first is read again; the others were not whole, or are no longer that.
    assert [marked(name) for name in names] == [True, False, False, False]
    assert [row.earned for row in rows.values()] == [20.0, 10.0, 0.0, 10.0, 0, 10.0, 0]


def test_several_at_a_time_give_the_same_table(
    judge: Judge, handed_in: Path, tmp_path: Path
) -> None:
    alone, both = tmp_path / "alone", tmp_path / "both"
    _graded(judge, handed_in, alone)
    with Judge(seed=judge.seed, device="cpu", deadlines=SHORT) as other:
        grade_class(handed_in, EXERCISES, [judge, other], both, lambda row: None)
    assert (both / "class.csv").read_text() == (alone / "class.csv").read_text()


def test_who_stops_a_run_keeps_what_was_graded(
    judge: Judge, handed_in: Path, tmp_path: Path
) -> None:
    def stop(row: Graded) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grade_class(handed_in, EXERCISES, [judge], tmp_path / "grades", stop)
    kept = (tmp_path / "grades" / "class.csv").read_text().splitlines()
    assert len(kept) == 2 and kept[1].startswith("'=ada,20.0")


def test_a_failure_of_the_graders_is_one_line(
    judge: Judge, handed_in: Path, tmp_path: Path
) -> None:
    (tmp_path / "grades").mkdir()
    (tmp_path / "grades" / "bob").write_text("in the way")
    rows = _graded(judge, handed_in, tmp_path / "grades")
    assert [name for name, row in rows.items() if row.failed] == ["bob"]
    assert "NotADirectoryError" in rows["bob"].trouble and rows["dan"].earned == 20.0


def test_a_grade_that_was_handed_in_is_none(
    judge: Judge, handed_in: Path, tmp_path: Path
) -> None:
    for out in (handed_in, handed_in / "grades"):
        with pytest.raises(ValueError, match="lies in the class's folder"):
            submissions(handed_in, out)
    _put(handed_in / "class.csv" / "01_small.ipynb")
    rows = _graded(judge, handed_in, tmp_path / "out")
    assert rows["class.csv"].trouble.startswith("rename it")


def test_no_student_is_shown_the_seed(
    folder: Path, tmp_path: Path, judge: Judge
) -> None:
    _put(folder / "ada/01_small.ipynb", WRONG)
    with Judge(seed=8_172_635_4, device="cpu", deadlines=SHORT) as secret:
        _graded(secret, folder, tmp_path / "out")
    for name in ("report.html", "results.json"):
        assert "81726354" not in (tmp_path / "out/ada" / name).read_text()


def test_no_cell_of_the_table_is_a_formula_or_a_line_of_its_own() -> None:
    text = table([Graded("@a,b\n=1", trouble="-x\x1b[2J\ny")], [])
    assert text.splitlines()[1] == "\"'@a,b =1\",0.0,0.0,0.0,'-x y"
    rows = table([Graded("nina a"), Graded("nina  a")], []).splitlines()
    assert rows[1] != rows[2]


def test_progress_says_how_long_it_will_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = iter((0.0, 30.0, 60.0))
    progress = Progress(202, clock=lambda: next(now))
    progress.line(Graded("ada", 7.5, 10.0, 10.0))
    progress.line(Graded("notes.txt", trouble="ignored"))
    assert capsys.readouterr().out.splitlines() == [
        "[1/202] ada: 7.5 / 10 (2 a minute, 100 min left)",
        "[2/202] notes.txt: ignored (2 a minute, 100 min left)",
    ]


def test_nothing_to_grade_is_one_line(tmp_path: Path) -> None:
    out = tmp_path.parent / "grades"
    with pytest.raises(ValueError, match="no such folder"):
        submissions(tmp_path / "gone", out)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ValueError, match=r"no folder, no \.ipynb file and no \.zip"):
        submissions(tmp_path, out)
