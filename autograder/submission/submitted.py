"""What is graded: a folder of notebooks, one notebook, or the course's own answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Protocol

from autograder.exercise import Exercise
from autograder.languages import SYNTAX, code_of, language_of
from autograder.submission.ipynb import (
    LARGEST_CELL,
    Notebook,
    NotebookError,
    exercise_in,
    read_notebook,
)
from autograder.submission.slips import slips

REFERENCES = "solutions"


@dataclass(frozen=True)
class Answer:
    """The cell that answers an exercise, or why there is none.

    Args:
        source: the cell as it stands, magic line included; empty where ``trouble``
            says why.
        trouble: for the learner.
        note: something to say that keeps nothing from being graded.
    """

    source: str = ""
    trouble: str = ""
    note: str = ""


class Submission(Protocol):
    """Where answers come from."""

    name: str

    def answer(self, exercise: Exercise) -> Answer:
        """Return the cell of one exercise."""

    def covers(self, exercise: Exercise) -> bool:
        """Say whether the exercise's chapter is part of what was handed in."""


@dataclass
class References:
    """The course's own answers, read as text from their marked regions."""

    name: str = REFERENCES

    def answer(self, exercise: Exercise) -> Answer:
        """Return the solved cell."""
        from autograder.regions import RegionError, cell_source

        try:
            return Answer(cell_source(exercise, solved=True))
        except RegionError as error:
            return Answer(trouble=str(error))

    def covers(self, exercise: Exercise) -> bool:
        """Every chapter has its answers."""
        return True


@dataclass
class Cells:
    """Cells by exercise, as a notebook's kernel recorded them."""

    cells: Mapping[str, str]
    name: str = "notebook"

    def answer(self, exercise: Exercise) -> Answer:
        """Return the recorded cell."""
        source = self.cells.get(exercise.id)
        if source is None:
            return Answer(trouble=_not_run(exercise, self.cells))
        return checked(source, exercise)

    def covers(self, exercise: Exercise) -> bool:
        """Only what was run is there."""
        return exercise.id in self.cells


@dataclass
class Notebooks:
    """Notebooks on disk: a folder of chapters, or one file."""

    path: Path
    name: str = ""
    _read: dict[Path, Notebook | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = self.name or str(self.path)

    def answer(self, exercise: Exercise) -> Answer:
        """Return the cell from the notebook of the exercise's chapter."""
        path = self._path(exercise)
        if path is None:
            return Answer(
                trouble=f"no notebook NN_{exercise.stem}.ipynb in {self.name}. "
                "`make notebooks` writes the untouched one to chapters/; SUBMISSION= "
                "names the folder that holds yours."
            )
        notebook = self._notebook(path)
        if isinstance(notebook, str):
            return Answer(trouble=notebook)
        cells = notebook.cells.get(exercise.id, [])
        if not cells:
            return Answer(trouble=_no_cell(exercise, path.name, notebook.cells))
        if len(set(cells)) > 1:
            # A stub that was copied before it was filled in answers nothing.
            cells = [c for c in cells if not is_untouched(exercise, c)] or cells
        if len(set(cells)) > 1:
            return Answer(
                trouble=f"{path.name} has {len(cells)} cells for exercise "
                f"{exercise.id}; wanted one. Delete those that do not count, or their "
                "`exercise:` line."
            )
        answer = checked(cells[0], exercise)
        if len(cells) == 1:
            return answer
        alike = (
            f"{path.name} has {len(cells)} cells for exercise {exercise.id}; wanted "
            "one. They are the same, so it was graded once."
        )
        return replace(answer, note=f"{answer.note} {alike}".strip())

    def covers(self, exercise: Exercise) -> bool:
        """A single notebook covers its own chapter; a folder covers all."""
        if self.path.is_dir() or not self.path.exists():
            return True
        return self._path(exercise) is not None

    def chapters(self) -> list[str]:
        """Return the stems of the chapters that a folder holds notebooks of."""
        from autograder.exercises import all_exercises

        every = all_exercises().values()
        return list(dict.fromkeys(e.stem for e in every if self._path(e) is not None))

    def read(self) -> set[Path]:
        """Return the notebooks that are read for some exercise."""
        from autograder.exercises import all_exercises

        every = all_exercises().values()
        return {path for e in every if (path := self._path(e)) is not None}

    def _notebook(self, path: Path) -> Notebook | str:
        """Read a notebook once; return what is wrong with one that cannot be."""
        if path not in self._read:
            try:
                self._read[path] = read_notebook(path)
            except NotebookError as error:
                self._read[path] = str(error)
        return self._read[path]

    def _path(self, exercise: Exercise) -> Path | None:
        if not self.path.is_dir():
            if not self.path.exists() or self._holds(exercise):
                return self.path
            return None
        stem = exercise.stem
        # The last two are what browsers and JupyterLab make of a second copy.
        for form in (f"[0-9][0-9]_{stem}", stem, f"*{stem} (*)", f"*{stem}-Copy*"):
            found = sorted(self.path.glob(f"{form}.ipynb"))
            if found:
                return found[0]
        return None

    def _holds(self, exercise: Exercise) -> bool:
        """Say whether a single notebook is the exercise's chapter.

        Its name says so, however the file was renamed around it; else its cells do.
        A file that says nothing either way is taken as whatever is asked for.
        """
        if exercise.stem in self.path.stem:
            return True
        notebook = self._notebook(self.path)
        if isinstance(notebook, str):
            return _is_no_chapter(self.path.stem)
        return exercise.id in notebook.cells


def open_submission(name: str) -> Submission:
    """Return the submission that a path, or the word ``solutions``, stands for.

    Raises:
        ValueError: there is nothing at the path, or nothing that could be graded.
    """
    # The folder of that name holds kernels, never notebooks.
    if name == REFERENCES:
        return References()
    path = Path(name)
    if not path.exists():
        raise ValueError(
            f"SUBMISSION={name}: no such folder or notebook. Name a folder that holds "
            "chapters, one .ipynb file, or `solutions`."
        )
    if not path.is_dir() and path.suffix != ".ipynb":
        raise ValueError(
            f"SUBMISSION={name}: it is no notebook; wanted a file whose name ends in "
            ".ipynb, a folder of them, or `solutions`."
        )
    submission = Notebooks(path)
    if path.is_dir() and not submission.chapters():
        raise ValueError(
            f"SUBMISSION={name}: no chapter's notebook is in this folder, such as "
            f"{_example()}. `make notebooks` writes the untouched ones to chapters/."
        )
    return submission


def _example() -> str:
    from autograder.exercises import all_exercises

    stem = next((e.stem for e in all_exercises().values()), "chapter")
    return f"NN_{stem}.ipynb or {stem}.ipynb"


def checked(source: str, exercise: Exercise) -> Answer:
    """Return the cell, or what keeps it from being graded."""
    if len(source) > LARGEST_CELL:
        return Answer(
            trouble=f"the cell of {exercise.id} is longer than "
            f"{LARGEST_CELL >> 20} MB. An answer is a few dozen lines: remove the "
            "data from it."
        )
    if not source.strip():
        return Answer(
            trouble=f"the cell of {exercise.id} is empty. Write your answer there; "
            "the chapter's page shows what the cell was given with."
        )
    language = language_of(source)
    if language != exercise.language:
        asked, given = SYNTAX[exercise.language], SYNTAX[language]
        wanted = (
            f"begin with {asked.magic}"
            if asked.magic
            else f"be {asked.title}, without {given.magic}"
        )
        return Answer(trouble=f"the cell of {exercise.id} must {wanted}.")
    # Lines are counted with the magic line, as the notebook shows them.
    note = " ".join(slips(code_of(source))) if language == "cuda" else ""
    return Answer(source=source, note=note)


def is_untouched(exercise: Exercise, source: str) -> bool:
    """Say whether a cell is still the stub that the chapter came with."""
    from autograder.authoring.chapters import ChapterError
    from autograder.regions import RegionError, cell_source

    try:
        stub = cell_source(exercise, solved=False)
    except (ChapterError, RegionError, OSError):
        return False  # nothing to compare with: it is graded like any other
    return _bare(stub) == _bare(source)


def _bare(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _not_run(exercise: Exercise, found: Iterable[str]) -> str:
    """Say that a kernel, which knows what it ran alone, has run no such cell."""
    if _misspelt(exercise, found):
        return _no_cell(exercise, "this notebook", found)
    line = SYNTAX[exercise.language].line(exercise.id)
    return (
        f"the cell of {exercise.id} has not been run since the kernel started: run it, "
        f"and check again. By the line `{line}` at its head it is known."
    )


def _no_cell(exercise: Exercise, where: str, found: Iterable[str]) -> str:
    syntax = SYNTAX[exercise.language]
    line = f"`{syntax.line(exercise.id)}`"
    misspelt = _misspelt(exercise, found)
    if misspelt:
        return (
            f"{where} has no cell for exercise {exercise.id}. A cell says "
            f"`{syntax.line(misspelt)}`, and no exercise is called so: write {line}."
        )
    return (
        f"{where} has no cell for exercise {exercise.id}. Its cell has the line "
        f"{line} at its head: put that line back, or restore the "
        "cell with `make update`."
    )


def _misspelt(exercise: Exercise, found: Iterable[str]) -> str:
    """Return a cell's id that names no exercise and looks like this one's; else ''."""
    from autograder.exercises import all_exercises

    every = [*all_exercises(), exercise.id]
    for name in found:
        near = get_close_matches(name, every, n=1) if name not in every else []
        if near == [exercise.id]:
            return name
    return ""


def _is_no_chapter(stem: str) -> bool:
    """Say whether a file's name fits no chapter, so that it may be any of them."""
    from autograder.exercises import all_exercises

    return not any(e.stem in stem for e in all_exercises().values())


__all__ = [
    "Answer",
    "Cells",
    "Notebooks",
    "References",
    "Submission",
    "checked",
    "exercise_in",
    "is_untouched",
    "open_submission",
]
