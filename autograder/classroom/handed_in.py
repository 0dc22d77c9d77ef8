"""What each student of a class handed in: its notebooks, gathered into one folder.

A learning platform hands out folders, single files and archives, under any name. All
that looks like a notebook is copied; a link is never followed, since it may lead to
somebody else's work or into the grader.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from autograder.submission.ipynb import LARGEST_FILE
from autograder.submission.submitted import Notebooks

# Browsers and mail programs add to a name, or change its case.
_NOTEBOOK = re.compile(r"\.ipynb(\.txt|\.json)?$", re.IGNORECASE)
# What no student means to hand in: copies by `make update`, a Mac's own files.
_PASSED_OVER = ("earlier", "__MACOSX")
_MOST_NOTEBOOKS = 200
_MOST_BYTES = 1 << 30


class NotGradable(Exception):
    """Nothing that was handed in can be graded; the message is for the instructor."""


@dataclass
class HandedIn:
    """A submission, opened.

    Args:
        submission: what is graded.
        digest: of the notebooks that were read: another one is another submission.
        notes: what was found beside them and not read.
    """

    submission: Notebooks
    digest: str
    notes: list[str] = field(default_factory=list)


def is_submission(path: Path) -> bool:
    """Say whether a file of a class's folder may be a student's."""
    if path.name.startswith("."):
        return False
    named = _NOTEBOOK.search(path.name) or _is_archive(path.name)
    return path.is_symlink() or path.is_dir() or bool(named)


@contextmanager
def opened(path: Path) -> Iterator[HandedIn]:
    """Gather a submission's notebooks, for as long as they are graded.

    Raises:
        NotGradable: there is none, or more than anybody hands in.
    """
    if path.is_symlink():
        raise NotGradable(f"{path.name} is a link: hand in the files themselves.")
    with tempfile.TemporaryDirectory(prefix="kw-class-") as folder:
        gathered = _Gathered(Path(folder))
        if path.is_dir():
            gathered.folder(path)
        elif _is_archive(path.name):
            gathered.archive(path, PurePosixPath())
        else:
            gathered.file(path, PurePosixPath(path.name))
        copied, digest = gathered.copy()
        if not copied:
            found = "; ".join(gathered.notes[:3]) or "it holds none"
            raise NotGradable(f"no notebook (.ipynb) was handed in: {found}")
        # One notebook may be called anything: its cells say which chapter it is.
        one = copied[0] if len(copied) == 1 else Path(folder)
        submission = Notebooks(one, path.name)
        if not (read := submission.read()):
            names = ", ".join(sorted(p.name for p in copied))
            raise NotGradable(
                f"no chapter's notebook was handed in, but {names}: wanted names such "
                "as 01_vector_add.ipynb."
            )
        gathered.notes += [f"{p.name} was not read" for p in copied if p not in read]
        yield HandedIn(submission, digest, gathered.notes)


def _is_archive(name: str) -> bool:
    return name.lower().endswith(".zip")


class _Gathered:
    """Notebooks as they are found, each by its place in the submission."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.notes: list[str] = []
        self._found: dict[PurePosixPath, Path | tuple[Path, str]] = {}

    def folder(self, root: Path) -> None:
        """Look for notebooks, and archives that hold some, at any depth."""
        for here, folders, files in os.walk(root):
            place = PurePosixPath(Path(here).relative_to(root))
            for name in [*folders]:
                if (Path(here) / name).is_symlink():
                    self.notes.append(f"{place / name} is a link and was not followed")
            folders[:] = [n for n in folders if not _is_passed_over(place / n)]
            for name in files:
                if _is_passed_over(place / name):
                    continue
                if _is_archive(name):
                    self.archive(Path(here) / name, place / name)
                else:
                    self.file(Path(here) / name, place / name)

    def file(self, path: Path, place: PurePosixPath) -> None:
        """Note a file if it is a notebook by its name."""
        if _NOTEBOOK.search(path.name):
            self._found[place] = path

    def archive(self, path: Path, place: PurePosixPath) -> None:
        """Note an archive's notebooks; nothing is unpacked yet."""
        try:
            with _plain_file(path) as file, zipfile.ZipFile(file) as archive:
                names = archive.namelist()
        except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError) as error:
            self.notes.append(f"{path.name} cannot be unpacked: {error}")
            return
        for name in names:
            inside = PurePosixPath(name)
            if _NOTEBOOK.search(name) and not _is_passed_over(inside):
                self._found[place / inside.relative_to(inside.anchor)] = (path, name)

    def copy(self) -> tuple[list[Path], str]:
        """Copy the notebooks side by side; return them and the digest of all.

        Of two with one name that in a folder ``chapters`` counts, then the one that
        lies less deep.
        """
        order = sorted(
            self._found,
            key=lambda p: ("chapters" not in p.parts[:-1], len(p.parts), str(p)),
        )
        if len(order) > _MOST_NOTEBOOKS:
            raise NotGradable(f"{len(order)} notebooks: more than {_MOST_NOTEBOOKS}.")
        copied: list[Path] = []
        whole, left = hashlib.sha256(), _MOST_BYTES
        for place in order:
            to = self.target / _NOTEBOOK.sub(".ipynb", place.name)
            if to in copied:
                self.notes.append(f"{place} was not read: there are two of this name")
                continue
            try:
                data = _read(self._found[place])
            except (OSError, ValueError, RuntimeError, zipfile.BadZipFile) as error:
                self.notes.append(f"{place} cannot be read: {error}")
                continue
            left -= len(data)
            if left < 0:
                raise NotGradable(f"its notebooks are over {_MOST_BYTES >> 20} MB.")
            to.write_bytes(data)
            copied.append(to)
            whole.update(f"{to.name}\0{len(data)}\0".encode("utf-8", "replace") + data)
        return copied, whole.hexdigest()


def _is_passed_over(place: PurePosixPath) -> bool:
    """Say whether a place is hidden, or holds what nobody means to hand in."""
    parts = [part for part in place.parts if part != ".."]
    return any(part.startswith(".") or part in _PASSED_OVER for part in parts)


def _read(found: Path | tuple[Path, str]) -> bytes:
    """Read a notebook, and no more of it than a notebook may have."""
    if isinstance(found, Path):
        with _plain_file(found) as file:
            data = file.read(LARGEST_FILE + 1)
    else:
        path, name = found
        with (
            _plain_file(path) as file,
            zipfile.ZipFile(file) as archive,
            archive.open(name) as member,
        ):
            data = member.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise ValueError(f"it is over {LARGEST_FILE >> 20} MB; clear its outputs")
    return data


def _plain_file(path: Path) -> IO[bytes]:
    """Open a file that is one: no link, no pipe that would never end."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError("it is not a file")
    return os.fdopen(handle, "rb")
