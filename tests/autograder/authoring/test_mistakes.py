"""Wrong answers, from edits of the right one or as files of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autograder.authoring import mistakes as module
from autograder.authoring.gated import otherwise
from autograder.authoring.mistakes import (
    RECORDS,
    WRONG,
    Mistake,
    MistakeError,
    mistakes,
)
from autograder.authoring.regions import cell_source
from autograder.exercise import Exercise
from autograder.exercises import all_exercises
from autograder.results import Gate, Result

EXERCISE = all_exercises()["copy_coalesced"]
RIGHT = "%%cuda\n// exercise: copy_coalesced\na = 1;\nb = 1;\nreturn a + b;\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def right(exercise: Exercise, solved: bool, root: Path) -> str:
        assert solved and root == tmp_path
        return RIGHT.removesuffix("\n")

    monkeypatch.setattr(module, "cell_source", right)
    made = tmp_path / WRONG / EXERCISE.stem / EXERCISE.id
    made.mkdir(parents=True)
    return made


def write(folder: Path, text: str) -> Path:
    folder.with_suffix(".toml").write_text(text)
    return folder.parents[3]


def test_edits_are_made_in_their_order(folder: Path) -> None:
    root = write(
        folder,
        "[minus]\nexpect = 'the sign'\nedits = [['a + b', 'a - b'], ['a - ', '-']]\n"
        "[gone]\nexpect = ' b is missing '\nedits = [['''\nb = 1;\n''', '']]\n",
    )
    (folder / "other.cu").write_text("// expect: another way\nreturn 3;\n")
    found = mistakes(EXERCISE, root)
    assert [(one.name, one.says) for one in found] == [
        ("gone", "b is missing"), ("minus", "the sign"), ("other", "another way"),
    ]  # fmt: skip
    assert found[0].cell == RIGHT.replace("b = 1;\n", "")
    assert found[1].cell == RIGHT.replace("a + b", "-b")
    assert found[2].cell == "%%cuda\n// exercise: copy_coalesced\nreturn 3;\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[x]\nexpect = 'e'\nedits = [['= 1', '= 2']]", r"\[x\] this stands 2 times"),
        (
            "[x]\nexpect = 'e'\nedits = [['z', 'd']]",
            "this stands 0 times in the answer",
        ),
        ("[x]\nexpect = 'e'\nedits = []", "at least one edit"),
        ("[x]\nexpect = ' '\nedits = [['a + b', 'a']]", "wants an expect"),
        ("[x]\nedits = [['a + b', 'a']]", "wants an expect"),
        ("[x]\nexpect = 'e'\nedits = [['a + b', 'a']]\nwhy = 1", "nothing else"),
        ("[other]\nexpect = 'e'\nedits = [['a + b', 'a']]", "two of other"),
        ("[x\n", r"copy_coalesced\.toml: "),
    ],
)
def test_what_does_not_fit_is_named(folder: Path, text: str, says: str) -> None:
    (folder / "other.cu").write_text("// expect: another way\nreturn 3;\n")
    with pytest.raises(MistakeError, match=says):
        mistakes(EXERCISE, write(folder, text))


def test_a_file_must_say_what_it_expects(folder: Path) -> None:
    (folder / "silent.cu").write_text("return 3;\n")
    with pytest.raises(MistakeError, match=r"silent\.cu: begin with"):
        mistakes(EXERCISE, write(folder, ""))


@pytest.fixture
def record(folder: Path) -> Path:
    made = folder.parents[3] / RECORDS / EXERCISE.stem / f"{EXERCISE.id}.toml"
    made.parent.mkdir(parents=True)
    return made


def test_a_record_is_an_edit_and_its_sentence(record: Path, folder: Path) -> None:
    record.write_text(
        "[minus]\nsays = '''\nThe sign\n is wrong.'''\nedits = [['a + b', 'a - b']]\n"
        "[times]\nlike = 'minus'\nlacks = 'c'\nedits = [['a + b', 'a * b']]\n"
        "['b_is_{n}']\nn = [2, 3]\nsays = 'b is {n}.'\nneeds = 'b'\n"
        "edits = [['b = 1', 'b = {n}']]\n"
        "[lost]\ngate = 'sound'\nsays = 'a race'\nedits = [['b = 1;', '']]\n"
        "[equivalent]\n'a + b -> b + a' = 'the same'\n"
    )
    found = {one.name: one for one in mistakes(EXERCISE, folder.parents[3])}
    assert sorted(found) == ["b_is_2", "b_is_3", "lost", "minus", "times"]
    assert found["minus"].says == found["times"].says == "The sign is wrong."
    assert (found["times"].lacks, found["b_is_3"].needs) == ("c", "b")
    assert found["b_is_3"].says == "b is 3." and "b = 3;" in found["b_is_3"].cell
    assert (found["lost"].gate, found["minus"].gate) == ("sound", "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("edits = [['a + b', 'a']]", "wants `says`, or `like`"),
        ("like = 'none'\nedits = [['a + b', 'a']]", "wants `says`, or `like`"),
        ("says = 's'\nlike = 'x'\nedits = [['a + b', 'a']]", "wants `says`"),
        ("says = 's'\ngate = 'g'\nedits = [['a + b', 'a']]", "gate is 'g'; wanted"),
        ("says = 's'\nwhy = 1\nedits = [['a + b', 'a']]", "has why; wanted"),
        ("says = 's'\nn = [1]\nedits = [['a + b', 'a']]", "has n; wanted"),
        ("says = 's'", "at least one edit"),
    ],
)
def test_a_record_that_does_not_fit_is_named(
    record: Path, folder: Path, text: str, says: str
) -> None:
    record.write_text(f"[x]\n{text}\n")
    with pytest.raises(MistakeError, match=rf"\[x\].*{says}"):
        mistakes(EXERCISE, folder.parents[3])


@pytest.mark.parametrize(
    ("gate", "words", "says"),
    [
        ("sound", "there is a race here", ""),
        ("sound", "it reads outside", "gate sound to say 'a race'; .* it reads"),
        ("counts", "there is a race", "the gate counts .* the first to fail was sound"),
    ],
)
def test_a_gate_that_says_something_else_is_told(
    gate: str, words: str, says: str
) -> None:
    gates = (Gate("compiles", "passed"), Gate("sound", "failed", words))
    result = Result("x", "small", "X", "core", "wrong", "wrong", words, gates)
    told = otherwise(Mistake("lost", "a race", "", gate), result)
    assert re.search(says, told) and bool(told) == bool(says)


def test_no_edit_of_the_course_leaves_the_answer_as_it_is() -> None:
    for exercise in all_exercises().values():
        right = cell_source(exercise, solved=True).strip()
        cells = {one.cell.strip() for one in mistakes(exercise)}
        assert right not in cells
        assert len(cells) == len(mistakes(exercise)), exercise.id
