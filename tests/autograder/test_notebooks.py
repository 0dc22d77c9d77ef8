"""Bad notebooks: each gets its clear line, and the other notebook is still graded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_exercises import (
    RIGHT,
    TWICE,
    code_cell,
    make_exercise,
    python_cell,
    write_notebook,
)

from autograder import regions
from autograder.judge.judge import Judge
from autograder.judge.results import Result
from autograder.languages import code_of
from autograder.submission import ipynb as notebooks
from autograder.submission.ipynb import (
    NotebookError,
    exercise_in,
    exercise_of,
    read_notebook,
)
from autograder.submission.submitted import Notebooks, open_submission

OTHER = make_exercise("after", stem="other")


def grade_beside(judge: Judge, folder: Path) -> Result:
    """Grade ``twice`` from a folder, and prove that the other chapter is graded."""
    write_notebook(folder / "02_other.ipynb", [RIGHT.format(name="after")])
    submission = Notebooks(folder)
    result = judge.grade(TWICE, submission)
    other = judge.grade(OTHER, submission)
    assert other.passed, other.message
    assert (result.status, result.earned, result.possible) == ("failed", 0.0, 10.0)
    return result


def test_a_missing_notebook_is_named(judge: Judge, tmp_path: Path) -> None:
    result = grade_beside(judge, tmp_path)
    assert "no notebook NN_small.ipynb" in result.message
    assert "make notebooks" in result.message
    assert result.words == "no answer"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ('{"cells": [{"cell_type": "code", "sou', "the file is cut off at line 1"),
        ("print('hello')", "it is not JSON"),
        ("[1, 2]", "a list or a value; wanted an object with cells"),
        ('{"cells": 3}', "it has no list of cells"),
        ("[" * 100_000, "it is not JSON"),
    ],
    ids=["empty", "truncated", "not-json", "a-list", "no-cells", "nested"],
)
def test_a_file_that_is_no_notebook(
    judge: Judge, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "01_small.ipynb").write_text(text)
    result = grade_beside(judge, tmp_path)
    assert words in result.message
    # `make notebooks` leaves alone what is there: it must be moved first.
    assert "Move it away: then `make notebooks` writes" in result.message


def test_bytes_that_are_no_text(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "01_small.ipynb").write_bytes(b"\x80\x81" * 10)
    assert "it is not JSON text" in grade_beside(judge, tmp_path).message


def test_a_truncated_notebook(judge: Judge, tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "01_small.ipynb", [RIGHT.format(name="twice")])
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    assert "the file is cut off" in grade_beside(judge, tmp_path).message


def test_a_folder_in_the_place_of_a_notebook(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "01_small.ipynb").mkdir()
    assert "it is not a file" in grade_beside(judge, tmp_path).message


def test_a_pipe_in_the_place_of_a_notebook(judge: Judge, tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "01_small.ipynb")
    assert "it is not a file" in grade_beside(judge, tmp_path).message


def test_a_huge_notebook_is_not_read(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notebooks, "LARGEST_FILE", 5 << 20)
    with (tmp_path / "01_small.ipynb").open("wb") as file:
        file.truncate(6 << 20)  # sparse: it takes no room
    message = grade_beside(judge, tmp_path).message
    assert "it is 6 MB" in message and "Clear its outputs" in message


def test_a_huge_cell(judge: Judge, tmp_path: Path) -> None:
    cell = RIGHT.format(name="twice") + "# " + "x" * (2 << 20)
    write_notebook(tmp_path / "01_small.ipynb", [cell])
    assert "longer than 1 MB" in grade_beside(judge, tmp_path).message


def test_a_notebook_without_the_cell(judge: Judge, tmp_path: Path) -> None:
    write_notebook(tmp_path / "01_small.ipynb", ["print(1)"])
    message = grade_beside(judge, tmp_path).message
    assert "01_small.ipynb has no cell for exercise twice" in message
    assert "# exercise: twice" in message


def test_a_notebook_with_the_cell_twice(judge: Judge, tmp_path: Path) -> None:
    cells = [RIGHT.format(name="twice"), python_cell("return x")]
    write_notebook(tmp_path / "01_small.ipynb", cells)
    message = grade_beside(judge, tmp_path).message
    assert "has 2 cells for exercise twice; wanted one" in message


def test_the_same_cell_twice_is_graded_once(judge: Judge, tmp_path: Path) -> None:
    write_notebook(tmp_path / "01_small.ipynb", [RIGHT.format(name="twice")] * 2)
    result = judge.grade(TWICE, Notebooks(tmp_path))
    assert result.passed
    assert "has 2 cells" in result.gates[0].message


def test_an_empty_cell(judge: Judge, tmp_path: Path) -> None:
    cell = code_cell("", id="ex-twice")
    write_notebook(tmp_path / "01_small.ipynb", [cell])
    assert "the cell of twice is empty" in grade_beside(judge, tmp_path).message


@pytest.mark.parametrize(
    "extra",
    [
        {"id": "ex-twice"},
        {"metadata": {"kernelwright": {"exercise": "twice"}}},
    ],
    ids=["id", "metadata"],
)
def test_a_cell_is_known_without_its_comment(
    judge: Judge, tmp_path: Path, extra: dict[str, Any]
) -> None:
    cell = code_cell("def twice(x):\n    return x + x\n", **extra)
    write_notebook(tmp_path / "01_small.ipynb", [cell])
    assert judge.grade(TWICE, Notebooks(tmp_path)).passed


def test_cells_of_odd_forms_are_passed_over(tmp_path: Path) -> None:
    odd: list[Any] = [
        3,
        None,
        {"cell_type": "code"},
        {"cell_type": "code", "source": [1, 2]},
        {"cell_type": "code", "source": {"a": 1}, "id": 7, "metadata": []},
        {"cell_type": "markdown", "source": "# exercise: twice"},
        code_cell("x = 1", metadata={"kernelwright": {"exercise": "../etc"}}),
        code_cell("# exercise: twice\n"),
    ]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": odd}))
    assert read_notebook(path).cells == {"twice": ["# exercise: twice\n"]}


def test_the_comment_counts_at_the_head_only() -> None:
    assert exercise_in("%%cuda\n// exercise: add\n") == "add"
    assert exercise_in("\n\n# exercise: add") == "add"
    assert exercise_in("a = 1\n" * 10 + "# exercise: add") is None


def test_one_notebook_covers_its_chapter_only(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "my_small.ipynb", [RIGHT.format(name="twice")])
    submission = open_submission(str(path))
    assert submission.covers(TWICE)
    assert not submission.covers(OTHER)


def test_the_magic_line_is_blanked_and_lines_stay() -> None:
    assert code_of("%%cuda\n// a\nint b;") == "\n// a\nint b;\n"
    assert code_of("# a\nx = '%%cuda'\n") == "# a\nx = '%%cuda'\n"


def test_a_link_to_nowhere_is_a_missing_notebook(tmp_path: Path) -> None:
    path = tmp_path / "01_small.ipynb"
    path.symlink_to(tmp_path / "gone")
    with pytest.raises(NotebookError, match="no such notebook"):
        read_notebook(path)


def test_a_byte_order_mark_hides_no_exercise(judge: Judge, tmp_path: Path) -> None:
    cell = "\ufeff" + RIGHT.format(name="twice")
    write_notebook(tmp_path / "01_small.ipynb", [cell.replace("\n", "\r\n")])
    result = judge.grade(TWICE, Notebooks(tmp_path))
    assert result.passed, result.message


def test_an_untouched_stub_beside_the_answer_is_no_second_one(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = python_cell("# Write it here.\nraise NotImplementedError")
    monkeypatch.setattr(regions, "cell_source", lambda exercise, solved: stub)
    right = RIGHT.format(name="twice")
    for cells in ([stub, right], [right, stub], [stub, right, right]):
        write_notebook(tmp_path / "01_small.ipynb", cells)
        assert Notebooks(tmp_path).answer(TWICE).source == right
    write_notebook(tmp_path / "01_small.ipynb", [stub, right, python_cell("return x")])
    assert "has 2 cells for exercise twice" in Notebooks(tmp_path).answer(TWICE).trouble


@pytest.mark.parametrize(
    ("head", "named"),
    [
        ("# exercise: twice, my second try", "twice"),
        ("# Exercise: twice", "twice"),
        ("%%cuda\n/* exercise: twice */", "twice"),
        ("# by\n# me\n\n# on\n# a\n# rainy\n# day\n# exercise: twice", "twice"),
        ("x = 1\ny = 2\nz = 3\nw = 4\n# exercise: twice", None),
        ("# exercises: twice", None),
    ],
)
def test_the_line_may_be_written_otherwise(head: str, named: str | None) -> None:
    assert exercise_in(f"{head}\nx = 1\n") == named


def test_what_a_cell_is_marked_as_goes_before_a_line_that_resembles_one() -> None:
    cell = code_cell("", metadata={"kernelwright": {"exercise": "twice"}})
    assert exercise_of(cell, "# Exercise: think first\n") == "twice"
    assert exercise_of(cell, "# exercise: after\n") == "after"
