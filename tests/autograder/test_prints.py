"""Prints: known mistakes are recognised by what they put out, or nothing is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_exercises import TWICE, give_prints, make_exercise, python_cell

from autograder.authoring import prints as writing
from autograder.authoring.mistakes import Mistake
from autograder.authoring.prints import PrintError, write_prints
from autograder.exercise import Exercise, withheld
from autograder.exercises import all_exercises
from autograder.judge import prints as prints_module
from autograder.judge import recognise
from autograder.judge.judge import Judge
from autograder.judge.prints import prints_of
from autograder.judge.results import Result
from autograder.languages import code_alone
from autograder.submission.submitted import Cells

EXERCISE = all_exercises()["online_update"]
RIGHT = """# exercise: online_update
def online_update(maximum, total, values):
    higher = torch.maximum(maximum, values.amax(1))
    base = torch.where(higher == -math.inf, 0.0, higher)
    total = total * torch.exp(maximum - base) + torch.exp(values - base[:, None]).sum(1)
    return higher, total
"""


def edited(*edits: tuple[str, str]) -> str:
    cell = RIGHT
    for old, new in edits:
        assert old in cell
        cell = cell.replace(old, new)
    return cell


def grade(judge: Judge, cell: str, exercise: Exercise = EXERCISE) -> Result:
    return judge.grade(exercise, Cells({exercise.id: cell}))


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have prints read and written elsewhere; the course's own are copied there."""
    (tmp_path / EXERCISE.stem / "prints").mkdir(parents=True)
    path = prints_module.path_of(EXERCISE)
    monkeypatch.setattr(prints_module, "EXERCISES", tmp_path)
    copied = prints_module.path_of(EXERCISE)
    copied.write_bytes(path.read_bytes())
    return copied


def changed(room: Path, change: dict[str, Any]) -> None:
    kept = json.loads(room.read_text())
    kept["mistakes"]["forgotten"] |= change
    room.write_text(json.dumps(kept))


FORGOTTEN = edited(("total * torch.exp(maximum - base) + ", ""))
SENTENCE = "The total holds these values alone"


def test_another_way_to_make_a_mistake_is_the_same_mistake(judge: Judge) -> None:
    result = grade(judge, FORGOTTEN)
    assert result.message.startswith(SENTENCE)
    gate = result.gate("right")
    assert gate is not None and gate.detail["mistake"] == "forgotten"


def test_two_mistakes_at_once_are_neither(judge: Judge) -> None:
    both = edited(
        ("total * torch.exp(maximum - base) + ", ""), ("values.amax(1)", "values[:, 0]")
    )
    result = grade(judge, both)
    assert not result.passed and result.message.startswith("With ")


@pytest.mark.parametrize(
    ("premise", "said"),
    [
        ({"needs": r"torch\.where"}, True),
        ({"needs": r"torch\.clamp"}, False),
        ({"lacks": r"torch\.where"}, False),
        ({"lacks": r"torch\.clamp"}, True),
    ],
)
def test_a_sentence_is_said_where_its_premise_holds(
    judge: Judge, room: Path, premise: dict[str, str], said: bool
) -> None:
    changed(room, premise)
    # A premise is asked of the code, not of what is said about it.
    result = grade(judge, FORGOTTEN + "    # torch.clamp\n")
    assert result.message.startswith(SENTENCE if said else "With ")


def test_comments_are_no_code() -> None:
    assert code_alone("x = '#'  # threadIdx\ny\n", "python") == "x = '#'  \ny\n"
    assert "threadIdx" not in code_alone("int x; // threadIdx\n", "cuda")
    assert code_alone("x = (  # no end\n", "python") == "x = (  # no end\n"


def test_prints_of_other_values_say_nothing(judge: Judge, room: Path) -> None:
    kept = json.loads(room.read_text())
    kept["cases"][0]["answer"]["total"][0] += 1.0
    room.write_text(json.dumps(kept))
    result = grade(judge, FORGOTTEN)
    assert not result.passed and result.message.startswith("With ")


@pytest.mark.parametrize(("longest", "said"), [(60.0, "This is B."), (-1.0, "With ")])
def test_mistakes_that_look_the_same_are_told_apart_or_not_named(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, longest: float, said: str
) -> None:
    """A busy machine's clock must not choose the first of them."""
    monkeypatch.setattr(recognise, "EXPLORE_S", -1.0)
    monkeypatch.setattr(recognise, "TELL_APART_S", longest)
    exercise = make_exercise("alike")
    give_prints(
        exercise,
        a=("This is A.", lambda a: {"out": a["x"] * (len(a["x"]) == 33)}),
        b=("This is B.", lambda a: {"out": a["x"]}),
    )
    result = grade(judge, python_cell("return x", "alike"), exercise)
    assert not result.passed and result.message.startswith(said)


def test_a_mistake_that_is_wrong_where_the_answer_was_right_explains_nothing(
    judge: Judge,
) -> None:
    """The answer is right on 33 elements and wrong on others, A everywhere alike."""
    exercise = make_exercise("apart")
    give_prints(
        exercise,
        a=("This is A.", lambda a: {"out": a["x"]}),
        b=("This is B.", lambda a: {"out": a["x"] * (2 if len(a["x"]) == 33 else 1)}),
    )
    cell = python_cell("return 2 * x if len(x) == 33 else x.clone()", "apart")
    assert grade(judge, cell, exercise).message.startswith("This is B.")


def test_what_is_another_value_at_one_place_is_another_mistake(judge: Judge) -> None:
    cell = python_cell("y = x.clone()\ny[3] += 1\nreturn y")
    assert grade(judge, cell, TWICE).message.startswith("With ")


def written(judge: Judge, monkeypatch: pytest.MonkeyPatch, *known: Mistake) -> int:
    monkeypatch.setattr(writing, "mistakes", lambda exercise: list(known))
    return write_prints(EXERCISE, judge)


ONE = Mistake("one", "Sentence one.", FORGOTTEN)


def test_mistakes_that_cannot_be_told_apart_are_refused(
    judge: Judge, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(ONE, name="other", says="Sentence two.")
    with pytest.raises(PrintError, match="one and other put out the same"):
        written(judge, monkeypatch, ONE, other)
    # One sentence, or a premise, and they may stay.
    assert written(judge, monkeypatch, ONE, replace(other, says=ONE.says)) == 1
    assert written(judge, monkeypatch, ONE, replace(other, needs="where")) == 2
    prints = prints_of(EXERCISE)
    assert prints is not None
    assert [one.name for one in prints.mistakes] == ["other", "one"]


def test_a_mistake_that_is_right_is_no_mistake(
    judge: Judge, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PrintError, match="right on every public case"):
        written(judge, monkeypatch, ONE, Mistake("none", "Nothing.", RIGHT))


def test_a_mistake_that_does_not_load_wants_its_gate(
    judge: Judge, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PrintError, match=r"does not load: .*gate = 'compiles'"):
        written(judge, monkeypatch, Mistake("broken", "No.", "def (:\n"))


def test_an_edition_without_the_reference_compares_with_the_print(judge: Judge) -> None:
    student = replace(
        EXERCISE, reference=withheld, hidden=lambda generator: (),
        tolerance=replace(EXERCISE.tolerance, scale=None),
    )  # fmt: skip
    assert grade(judge, RIGHT, student).passed
    for cell in (FORGOTTEN, edited(("return higher,", "return base,"))):
        full, without = grade(judge, cell), grade(judge, cell, student)
        assert not full.passed and without.message == full.message
    nearly = edited(("return higher, total", "return higher, total * (1 + 1e-4)"))
    assert grade(judge, nearly, student).status == "failed"
