"""What the book adds to Sphinx, on pages of a few lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from autograder.exercises import all_exercises
from autograder.regions import cell_source

ROOT = Path(__file__).parents[2]
EXTENSIONS = ROOT / "book/extensions"
sys.path.append(str(EXTENSIONS))

from kernelwright_book import reader

CONF = f"""
import sys
sys.path[:0] = [{str(EXTENSIONS)!r}, {str(ROOT)!r}]
extensions = ["myst_nb", "kernelwright_book"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
nb_execution_mode = "off"
exclude_patterns = ["_build"]
"""

PAGE = """\
# A page

:::{exercise} vector_add
:::

:::{hints} vector_add
:::

:::{solution} vector_add
Because of the *guard*.
:::

:::{results} tiny
:rows: fast, slow
:columns: label=Kernel | ms:.2f=Time (ms)
:plot: ratio:.0%=Of a copy
:peers: slow
:::

On {result}`tiny/meta/device`: {result}`tiny/fast/ms:.1f` against
{result}`tiny/slow/ms` and {result}`nothing/slow/ms`.

```{code-block} cuda-cell
%%cuda
__global__ void k() {}
```

```{code-block} python
%%cpp
extern "C" void f(int n) {}
```
"""

RESULTS = (
    '{"device": "NVIDIA H200", "date": "2026-11-21",'
    ' "rows": [{"name": "fast", "label": "The `fast` one", "ms": 1.234, "ratio": 0.5}]}'
)


def build(folder: Path, page: str, solutions: str = "1") -> tuple[int, str, str]:
    """Build one page; return Sphinx's exit code, its complaints and the HTML."""
    (folder / "conf.py").write_text(CONF)
    (folder / "index.md").write_text(page)
    for name in ("solutions", "autograder"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    results = folder / "benchmarks/results"
    results.mkdir(parents=True, exist_ok=True)
    (results / "tiny.json").write_text(RESULTS)
    # Only the page: what the links lead to is not part of this book.
    command = [sys.executable, "-m", "sphinx", "-qW", "--keep-going", "-E"]
    command += ["-D", "exclude_patterns=solutions,autograder,_build"]
    command += ["-b", "html", str(folder), str(folder / "_build")]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | {"SOLUTIONS": solutions},
    )
    html = folder / "_build/index.html"
    return run.returncode, run.stderr, html.read_text() if html.exists() else ""


def test_a_page_says_what_is_declared_and_stored(tmp_path: Path) -> None:
    code, said, html = build(tmp_path, PAGE)
    assert code == 0, said
    exercise = all_exercises()["vector_add"]
    assert f"Exercise: {exercise.title}" in html
    assert f"Core · {exercise.points} points · CUDA C++" in html
    assert html.count('class="kw-folded kw-hint"') == 3
    assert 'class="kw-folded kw-solution"' in html
    assert "Because of the <em>guard</em>." in html
    assert '<td class="text-right"><p>1.23</p></td>' in html
    assert "<em>not measured</em>" in html
    assert 'aria-label="Of a copy. The fast one: 50%; slow: not measured."' in html
    assert html.count('class="kw-ours"') == 1 and 'class="kw-peer"' not in html
    assert "Measured on NVIDIA H200, on 2026-11-21." in html
    assert '<span class="kw-result">NVIDIA H200</span>' in html
    assert '<span class="nd">%%cuda</span>' in html
    assert '<span class="kr">__global__</span>' in html
    assert '<span class="nd">%%cpp</span>' in html
    assert '<span class="k">extern</span>' in html


def test_the_edition_without_answers_has_none(tmp_path: Path) -> None:
    code, said, html = build(tmp_path, PAGE, solutions="0")
    assert code == 0, said
    assert "kw-solution" not in html and "Because of" not in html
    assert 'class="kw-folded kw-hint"' in html


def test_each_mistake_in_a_chapter_fails_the_build_with_its_line(
    tmp_path: Path,
) -> None:
    mistakes = {
        ":::{exercise} none\n:::": "no exercise is declared as 'none'",
        ":::{results} tiny\n:columns: x\n:::": "a column is key=Heading",
        ":::{results} tiny\n:columns: ms=A\n:plot: ms=A | ms=B\n:::": "shows one",
        ":::{results} tiny\n:columns: ms=A\n:plot: label=A\n:::": "no bar shows",
        "{result}`tiny/x`": "a result is file/row/key",
        "{result}`tiny/fast/label:.2f`": "has no format '.2f'",
    }
    page = "# A page\n\n" + "\n\n".join(mistakes) + "\n"
    code, said, _ = build(tmp_path, page)
    assert code != 0
    for text, complaint in mistakes.items():
        line = page[: page.index(text)].count("\n") + 1
        assert f"index.md:{line}: " in said, text
        assert complaint in said


# --- The reader that runs a chapter -----------------------------------------------

HEAD = "---\njupytext: {}\n---\n# A\n\n"


def chapter(folder: Path, *cells: str) -> tuple[Path, str]:
    """Lay out a chapter of code cells in a course of its own."""
    blocks = [f"```{{code-cell}} ipython3\n{cell}\n```\n" for cell in cells]
    path = folder / "chapters/01_a.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + "\n".join(blocks))
    return path, path.read_text()


def read(path: Path, text: str) -> nbformat.NotebookNode:
    return reader.read(text, path=str(path), timeout=60, merge_streams=True)


def test_a_chapter_runs_once_until_something_that_it_reads_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, text = chapter(tmp_path, "print('one')\nprint('two')")
    first = read(path, text)
    assert first.cells[1].outputs[0].text == "one\ntwo\n"
    runs: list[Path] = []
    real = reader.execute

    def counted(
        notebook: nbformat.NotebookNode, where: Path, timeout: int
    ) -> nbformat.NotebookNode:
        runs.append(where)
        return real(notebook, where, timeout)

    monkeypatch.setattr(reader, "execute", counted)
    assert read(path, text) == first
    assert runs == []
    module = tmp_path / "solutions/a.py"
    module.parent.mkdir()
    module.write_text("x = 1\n")
    read(path, text)
    assert len(runs) == 1
    module.write_text("x = 2\n")
    read(path, text)
    assert len(runs) == 2
    assert len(list((tmp_path / "_build/executed").iterdir())) == 1, "the old are gone"


def test_a_cell_that_raises_fails_the_book(tmp_path: Path) -> None:
    path, text = chapter(tmp_path, "1 / 0")
    with pytest.raises(reader.ChapterFailed, match="ZeroDivisionError"):
        read(path, text)


def test_an_answer_that_fails_its_check_fails_the_book(tmp_path: Path) -> None:
    said = "✗ twice: wrong"
    path, text = chapter(
        tmp_path,
        f"class Said:\n    def __repr__(self): return {said!r}\n",
        "check = lambda f: Said()",
        "check(1)",
    )
    with pytest.raises(reader.ChapterFailed, match=r"01_a\.md:17: .*its check"):
        read(path, text)


def test_a_check_that_passes_is_said_to_be_the_answers(tmp_path: Path) -> None:
    path, text = chapter(
        tmp_path,
        "class Said:\n    def __repr__(self): return '✓ twice'\n",
        "check = lambda f: Said()",
        "check(1)",
    )
    note, said = read(path, text).cells[3].outputs
    assert "With the answer in place" in note.data["text/html"]
    assert said.data["text/plain"] == "✓ twice"


def test_without_answers_a_chapter_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, text = chapter(
        tmp_path,
        "check = lambda f: '✗ not attempted'",
        ":tags: [exercise]\n# exercise: vector_add_triton\nx = 1",
        "check(1)",
    )
    monkeypatch.setattr(reader, "with_stubs", lambda text, path, edition: text)
    cells = read(path, text).cells
    assert [o.data["text/plain"] for o in cells[3].outputs] == ["'✗ not attempted'"]


def test_a_detective_is_shown_broken_and_checked_mended() -> None:
    """In the real chapter: the drawing shows the fault, the check the mended form."""
    (path,) = (ROOT / "chapters").glob("01_*.md")
    from autograder.authoring.chapters import read_chapter

    notebook = reader._solved(read_chapter(path), ROOT)
    exercises = [e for e in all_exercises().values() if e.stem == "vector_add"]
    sources = [cell.source for cell in notebook.cells]
    for exercise in exercises:
        answer = sources.index(cell_source(exercise, True))
        if exercise.kind == "detective":
            broken = sources.index(cell_source(exercise, False))
            assert broken < answer
            assert sources[answer + 1].startswith("check(")
        else:
            assert cell_source(exercise, False) not in sources
