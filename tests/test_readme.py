"""What the README says is what stands in the tree."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_its_files_exist() -> None:
    targets = re.findall(r"\]\(([\w./-]+)\)", README)
    assert len(targets) > 4
    assert [name for name in targets if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        ("_toc.yml", "- file: chapters/{}\n"),
        ("README.md", "](chapters/{}.md) |"),
        ("book/index.md", "](../chapters/{}.md) |"),
    ],
)
def test_every_chapter_is_listed(page: str, wanted: str) -> None:
    text = (ROOT / page).read_text()
    chapters = [path.stem for path in (ROOT / "chapters").glob("[0-9]*.md")]
    absent = [name for name in chapters if wanted.format(name) not in text]
    assert chapters and not absent, f"{page} has no line for {', '.join(absent)}"


def test_its_figures_are_the_stored_ones() -> None:
    figures = re.findall(r"(\w+): (\d+)% of copy bandwidth", README)
    assert figures
    for stem, percent in figures:
        file = ROOT / "benchmarks" / "results" / f"{stem}-nvidia-h200.json"
        rows = json.loads(file.read_text())["rows"]
        assert int(percent) in {
            round(100 * row["ratio"]) for row in rows if "ratio" in row
        }, f"{file.name} stores no {percent}%"


def test_its_commands_are_the_makefile_s() -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = set(re.findall(r"`make (\w+)|^make (\w+)", README, re.MULTILINE))
    names = {a or b for a, b in commands}
    assert {"grade", "test", "lab", "book", "release"} <= names
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in names)


def test_it_is_no_longer_than_two_screens() -> None:
    assert len(README.splitlines()) <= 90
