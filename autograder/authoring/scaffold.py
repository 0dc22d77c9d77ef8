"""All files of a new chapter, from a template that is a small chapter itself.

``make new-chapter STEM=histogram TITLE="Histogram"`` writes them, lists the chapter
where readers look for it, and brings notebook and prints into step.
"""

from __future__ import annotations

import keyword
import re
import shlex
import subprocess
import sys
from pathlib import Path

from autograder.authoring.chapters import chapter_files
from autograder.exercises import all_exercises
from autograder.regions import ROOT

TEMPLATE = Path(__file__).with_name("template")
PROMPT = "To write:"
"""What stands before each thing that the author is to put in its place."""

_STEM = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_TITLE = re.compile(r"[A-Z0-9][\w ,'()+-]{0,49}")
# Where chapters are listed: a line that lists one, and the line of the new one.
_LISTS = {
    "_toc.yml": (
        r"      - file: chapters/.*\n",
        "      - file: chapters/{number:02}_{stem}\n",
    ),
    "book/index.md": (
        r"\| \d+ \| \[.*\]\(\.\./chapters/.*\n",
        "| {number} | [{title}](../chapters/{number:02}_{stem}.md) | To write: the "
        "rungs → in their order |\n",
    ),
    "README.md": (
        r"\| \[\d+ .*\]\(chapters/.*\n",
        "| [{number} {title}](chapters/{number:02}_{stem}.md) | To write: what the "
        "reader writes | not measured |\n",
    ),
}


class ScaffoldError(Exception):
    """No chapter can be made of this stem or title; the message says the mend."""


def new_chapter(stem: str, title: str, root: Path = ROOT) -> list[Path]:
    """Write a chapter's files and list it as the last one.

    Args:
        stem: its name in every path, such as ``tensor_cores``.
        title: its heading.
        root: the checkout.

    Returns:
        The files, relative to the root: first those that are new, then the lists.

    Raises:
        ScaffoldError: the stem or the title will not do, or is taken.
    """
    _check_words(stem, title)
    numbers = [int(path.name[:2]) for path in chapter_files(root / "chapters")]
    number = max(numbers, default=0) + 1
    said = {
        "new_stem": stem,
        "NEW_STEM": stem.upper(),
        "New title": title,
        "NN_": f"{number:02}_",
    }
    made = {
        Path(_put(source.relative_to(TEMPLATE).as_posix(), said)): _put(
            source.read_text(encoding="utf-8"), said
        )
        for source in sorted(TEMPLATE.rglob("*.*"))
        if source.is_file() and "__pycache__" not in source.parts
    }
    _refuse_taken(stem, list(made), root)
    listed = {}
    for name, (row, line) in _LISTS.items():
        text = (root / name).read_text(encoding="utf-8")
        *_, last = re.finditer(rf"^{row}", text, re.M)
        added = line.format(number=number, stem=stem, title=title)
        listed[Path(name)] = text[: last.end()] + added + text[last.end() :]
    for path, text in (made | listed).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return [*made, *listed]


def _check_words(stem: str, title: str) -> None:
    if not _STEM.fullmatch(stem) or keyword.iskeyword(stem) or len(stem) > 24:
        raise ScaffoldError(
            f"STEM is {stem!r}; wanted small letters and digits with _ between them, "
            "24 at most, such as tensor_cores: it names files, a kernel and modules"
        )
    if not _TITLE.fullmatch(title):
        raise ScaffoldError(
            f"TITLE is {title!r}; wanted up to 50 letters, digits, blanks or ,'()+- "
            'with a capital first, such as TITLE="Tensor cores"'
        )


def _put(text: str, said: dict[str, str]) -> str:
    for old, new in said.items():
        text = text.replace(old, new)
    return text


def _refuse_taken(stem: str, made: list[Path], root: Path) -> None:
    chapters = (root / "chapters").glob(f"[0-9][0-9]_{stem}.*")
    there = [path.relative_to(root) for path in chapters]
    there += [path for path in made if (root / path).exists() and path not in there]
    if there:
        raise ScaffoldError(
            f"{stem} is there already: {', '.join(map(str, there))}. Take another "
            "STEM, or remove that chapter first (CONTRIBUTING.md, Removing a chapter)"
        )
    if stem in all_exercises():
        raise ScaffoldError(
            f"chapter {all_exercises()[stem].stem} has an exercise {stem}, and the "
            "first one of a new chapter has its stem for a name. Take another STEM"
        )


def bring_into_step(stem: str, files: list[Path], root: Path = ROOT) -> int:
    """Put new files into form, and write their notebook and prints.

    Each step is a process of its own: this one has read the exercises as they were.

    Returns:
        0, or the exit code of the step that failed; its command is printed.
    """
    python = [name for name in map(str, files) if name.endswith(".py")]
    kernels = [name for name in map(str, files) if name.endswith(".cu")]
    for arguments in (
        ["-m", "ruff", "check", "--quiet", "--select", "I", "--fix", *python],
        ["-m", "ruff", "format", "--quiet", *python],
        ["tools/clang_format.py", "-i", *kernels],
        ["-m", "autograder.authoring", "notebooks"],
        ["-m", "autograder.authoring", "mistakes", "--only", stem],
    ):
        code = subprocess.call([sys.executable, *arguments], cwd=root)
        if code:
            print(f"this failed: {shlex.join([sys.executable, *arguments])}")
            return code
    return 0


def what_next(stem: str, files: list[Path]) -> str:
    """Return what the author does now."""
    return f"""
{len(files)} files, {len(_LISTS)} of them lists that have a new line. Now:

1. git add -A               `make lint` and `make release` read what git knows
2. make lint
   make grade SUBMISSION=solutions ONLY={stem}
   make test PYTEST="-k '{stem} or test_layout or test_readme'"
   make book                all four pass as it stands
3. git grep -n "{PROMPT}" -- ':!autograder/authoring'
                            each is a prompt: put what it asks for in its place

CONTRIBUTING.md walks through an exercise and a chapter."""
