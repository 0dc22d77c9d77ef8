"""Directives and roles as Markdown that Colab and JupyterLab can show."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from autograder.authoring.box import as_markdown
from autograder.authoring.chapters import ChapterError, read_chapter
from autograder.authoring.notebooks import default_edition
from autograder.authoring.plain import Setting, plain
from autograder.authoring.results import parse_columns, table
from autograder.regions import ROOT
from tests.autograder.authoring.course import exercises, lay_out


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    edition, chapter = lay_out(tmp_path)
    return Setting(
        chapter, exercises(), tmp_path / "benchmarks/results", edition.repository
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a {term}`warp`, {term}`warps <warp>`", "a warp, warps"),
        ("{math}`x^2`", "$x^2$"),
        ("on {result}`tiny/meta/device`", "on NVIDIA H200"),
        ("{result}`tiny/fast/ms:.1f` ms", "1.2 ms"),
        ("{result}`tiny/slow/ms` ms", "not measured ms"),
        ("{result}`none/slow/ms` ms", "not measured ms"),
        ("[a](../book/setup.md#b)", "[a](https://example.org/course/blob/main/book/setup.md#b)"),
        ("[a](02_next.md)", "[a](02_next.ipynb)"),
        ("[a](https://x.org/b.md)", "[a](https://x.org/b.md)"),
        (":::{math}\nx\n:::", "$$\nx\n$$"),
        (":::{hints} twice\n:::", ""),
        (":::{solution} twice\nthe secret\n:::", ""),
        ("a\n\n:::{note}\nb\n:::\n\nc", "a\n\n> **Note**\n>\n> b\n\nc"),
        (":::{admonition} T\nb\n:::", "> **T**\n>\n> b"),
        ("```c++\n{term}`x`\n:::{note}\n```", "```c++\n{term}`x`\n:::{note}\n```"),
        (
            "::::{dropdown} More\n:::{tip}\nx\n:::\n::::",
            "<details><summary><b>More</b></summary>\n\n"
            "> **Tip**\n>\n> x\n\n</details>",
        ),
    ],
)  # fmt: skip
def test_each_has_its_plain_form(text: str, wanted: str, setting: Setting) -> None:
    assert plain(text, setting) == wanted


def test_the_exercise_box_comes_from_the_declaration(setting: Setting) -> None:
    text = plain(":::{exercise} twice\n:::", setting)
    assert all(line.startswith(">") for line in text.splitlines())
    for part in ("Write `twice`.", "10 points", "> - Any length.", 'hint("twice")'):
        assert part in text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("out[i] = a*x + b*y", r"out\[i\] = a\*x + b\*y"),
        ("set `out[i]` to x_i", r"set `out[i]` to x\_i"),
        ("k[(n,)](x)", r"k\[(n,)\](x)"),
    ],
)
def test_declared_text_is_not_read_as_markdown(text: str, wanted: str) -> None:
    assert as_markdown(text) == wanted


def test_a_table_says_for_what_the_memory_did_not_suffice(tmp_path: Path) -> None:
    failed = "CUDA out of memory. Tried to allocate 64.00 GiB"
    rows = [
        {"name": "a", "ms": 1.5},
        {"name": "b", "failed": failed},
        {"name": "c", "out_of_memory": True},
        {"name": "d", "failed": "no kernel image is available"},
    ]
    (tmp_path / "tiny.json").write_text(json.dumps({"rows": rows}))
    columns = parse_columns("name=K | ms:.1f=ms")
    made = table("tiny", ["a", "b", "c", "d", "e"], columns, tmp_path)
    assert [row[1] for row in made.rows] == [
        "1.5", "out of memory", "out of memory", "not measured", "not measured",
    ]  # fmt: skip
    assert "| b | *out of memory* |" in made.markdown()


def test_a_table_of_results_says_what_was_not_measured(setting: Setting) -> None:
    text = ":::{results} tiny\n:rows: fast, slow\n:columns: label=K | ms:.2f=ms\n:::"
    assert plain(text, setting).splitlines() == [
        "| K | ms |",
        "| :--- | ---: |",
        "| The fast one | 1.23 |",
        "| slow | *not measured* |",
        "",
        "*Measured on NVIDIA H200, with torch 2.13.0, on 2026-11-21.*",
    ]


def test_a_plot_of_results_travels_with_its_words(setting: Setting) -> None:
    """As data in the text: JupyterLab shows no SVG that is attached."""
    text = (
        ":::{results} tiny\n:rows: fast, slow\n:columns: label=K | ms:.2f=ms\n"
        ":plot: ms:.1f=Of a copy\n:::"
    )
    first, *_, source, _, last = plain(text, setting).splitlines()
    name = last.partition(":")[0]
    assert first == f"![The fast one: 1.2; slow: not measured.]{name}"
    assert source.startswith("*Measured on") and not setting.attachments
    data = last.removeprefix(f"{name}: <data:image/svg+xml;base64,").removesuffix(">")
    drawn = base64.b64decode(data, validate=True).decode()
    assert "Of a copy" in drawn and 'fill="#fff"' in drawn
    one = text.removesuffix(":::") + ":plot-rows: fast\n:::"
    assert plain(one, setting).startswith("![The fast one: 1.2.]")
    none = one.replace("plot-rows: fast", "plot-rows: slow")
    assert plain(none, setting).startswith("| K | ms |")


def test_a_figure_travels_inside_the_notebook(setting: Setting) -> None:
    (setting.chapter.parent / "f.svg").write_text("<svg/>")
    text = plain(":::{figure} f.svg\n:alt: A thing\nIt is so.\n:::", setting)
    assert text == "![A thing](attachment:f.svg)\n\n*It is so.*"
    assert setting.attachments == {"f.svg": {"image/svg+xml": "PHN2Zy8+"}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x\n\n:::{mystery}\n:::", "01_doubling.md:12: {mystery} has no plain form"),
        ("x {mystery}`y`", "01_doubling.md:10: {mystery} has no plain form"),
        (":::{exercise} none\n:::", "no exercise is declared as 'none'"),
        (":::{figure} none.svg\n:alt: a\n:::", "no figure at none.svg"),
        (":::{figure} 01_doubling.md\n:::", "give it :alt:"),
        (":::{results} tiny\n:columns: bad\n:::", "a column is key=Heading"),
        ("{result}`tiny/fast`", "a result is file/row/key"),
        ("[x](../../../etc/away.md)", "leaves the course"),
    ],
)
def test_what_has_no_plain_form_is_an_error_with_its_line(
    text: str, says: str, setting: Setting
) -> None:
    with pytest.raises(ChapterError) as caught:
        plain(text, setting, line=10)
    assert says in str(caught.value)


@pytest.mark.parametrize("path", sorted((ROOT / "chapters").glob("[0-9]*.md")))
def test_no_directive_is_left_in_a_real_chapter(path: Path) -> None:
    edition = default_edition()
    setting = Setting(
        path, edition.exercises, ROOT / "benchmarks/results", edition.repository
    )
    for cell in read_chapter(path).cells:
        if cell.kind == "markdown":
            text = plain(cell.source, setting, cell.line)
            assert ":::" not in text
            assert "{term}" not in text and "{result}" not in text
