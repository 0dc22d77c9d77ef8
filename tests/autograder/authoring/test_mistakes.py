"""Wrong answers, from edits of the right one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autograder.authoring import mistakes as module
from autograder.authoring.gated import otherwise
from autograder.authoring.mistakes import Mistake, MistakeError, mistakes, record_of
from autograder.exercise import Exercise
from autograder.exercises import all_exercises
from autograder.judge.results import Gate, Result
from autograder.regions import cell_source

EXERCISE = all_exercises()["copy_coalesced"]
RIGHT = "%%cuda\n// exercise: copy_coalesced\na = 1;\nb = 1;\nreturn a + b;\n"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def right(exercise: Exercise, solved: bool, root: Path) -> str:
        assert solved and root == tmp_path
        return RIGHT.removesuffix("\n")

    monkeypatch.setattr(module, "cell_source", right)
    made = record_of(EXERCISE, tmp_path)
    made.parent.mkdir(parents=True)
    return made


def test_edits_are_made_in_their_order(record: Path, tmp_path: Path) -> None:
    record.write_text(
        "[minus]\nsays = 'the sign'\nedits = [['a + b', 'a - b'], ['a - ', '-']]\n"
        "[gone]\nsays = ' b is missing '\nedits = [['''\nb = 1;\n''', '']]\n"
    )
    gone, minus = mistakes(EXERCISE, tmp_path)
    assert (gone.name, gone.says) == ("gone", "b is missing")
    assert gone.cell == RIGHT.replace("b = 1;\n", "")
    assert minus.cell == RIGHT.replace("a + b", "-b")


def test_a_record_is_an_edit_and_its_sentence(record: Path, tmp_path: Path) -> None:
    record.write_text(
        "[minus]\nsays = '''\nThe sign\n is wrong.'''\nedits = [['a + b', 'a - b']]\n"
        "[times]\nlike = 'minus'\nlacks = 'c'\nedits = [['a + b', 'a * b']]\n"
        "['b_is_{n}']\nn = [2, 3]\nsays = 'b is {n}.'\nneeds = 'b'\n"
        "edits = [['b = 1', 'b = {n}']]\n"
        "[lost]\ngate = 'sound'\nsays = 'a race'\nedits = [['b = 1;', '']]\n"
        "[equivalent]\n'a + b -> b + a' = 'the same'\n"
    )
    found = {one.name: one for one in mistakes(EXERCISE, tmp_path)}
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
        ("says = ' '\nedits = [['a + b', 'a']]", "wants `says`"),
        ("says = 's'", "at least one edit"),
        ("says = 's'\nedits = [['= 1', '= 2']]", "this stands 2 times in the answer"),
        ("says = 's'\nedits = [['z', 'd']]", "this stands 0 times in the answer"),
    ],
)
def test_a_record_that_does_not_fit_is_named(
    record: Path, tmp_path: Path, text: str, says: str
) -> None:
    record.write_text(f"[x]\n{text}\n")
    with pytest.raises(MistakeError, match=rf"\[x\].*{says}"):
        mistakes(EXERCISE, tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "['b_is_{n}']\nn = [2, 2]\nsays = 's'\nedits = [['b = 1', 'b = {n}']]",
            "two of b_is_2",
        ),
        ("[x\n", r"copy_coalesced\.toml: "),
    ],
)
def test_a_file_that_does_not_fit_is_named(
    record: Path, tmp_path: Path, text: str, says: str
) -> None:
    record.write_text(text)
    with pytest.raises(MistakeError, match=says):
        mistakes(EXERCISE, tmp_path)


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
