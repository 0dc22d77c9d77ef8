"""Wrong answers, from edits of the right one or as files of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from autograder.authoring import mistakes as module
from autograder.authoring.mistakes import WRONG, MistakeError, mistakes
from autograder.authoring.regions import cell_source
from autograder.exercise import Exercise
from autograder.exercises import all_exercises

EXERCISE = all_exercises()["add_one"]
RIGHT = "%%cuda\n// exercise: add_one\na = 1;\nb = 1;\nreturn a + b;\n"


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
    assert [(one.name, one.expect) for one in found] == [
        ("gone", "b is missing"), ("minus", "the sign"), ("other", "another way"),
    ]  # fmt: skip
    assert found[0].cell == RIGHT.replace("b = 1;\n", "")
    assert found[1].cell == RIGHT.replace("a + b", "-b")
    assert found[2].cell == "%%cuda\n// exercise: add_one\nreturn 3;\n"


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
        ("[x\n", r"add_one\.toml: "),
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


def test_no_edit_of_the_course_leaves_the_answer_as_it_is() -> None:
    for exercise in all_exercises().values():
        right = cell_source(exercise, solved=True).strip()
        cells = {one.cell.strip() for one in mistakes(exercise)}
        assert right not in cells
        assert len(cells) == len(mistakes(exercise)), exercise.id
