"""``make grade``: the files it writes, the table, the words, the exit codes."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from small_exercises import (
    AFTER,
    KERNEL,
    RIGHT,
    RIGHT_KERNEL,
    SPEED,
    TWICE,
    make_exercise,
    python_cell,
    write_notebook,
)

from autograder import __main__ as command
from autograder import exercises
from autograder import grade as grading
from autograder.grade import grade, select, write_atomically
from autograder.judge.judge import Judge
from autograder.judge.results import Gate, Part, Record, Result
from autograder.report.html import html_report
from autograder.report.table import Progress, plain_table, print_record
from autograder.submission.submitted import Notebooks, open_submission

HOSTILE = (
    "print('<script>alert(1)</script>', '\\x1b[2J')\n"
    "raise ValueError('<img src=x onerror=alert(1)> \\x1b]0;mine\\x07')"
)


@pytest.fixture
def record(judge: Judge, tmp_path: Path) -> Record:
    """A run over a right answer, a hostile one and one that is missing."""
    folder = tmp_path / "mine"
    folder.mkdir()
    cells = [python_cell(HOSTILE), RIGHT_KERNEL.replace("i < n", "i < n - 1")]
    write_notebook(folder / "01_small.ipynb", [*cells, RIGHT.format(name="after")])
    missing = make_exercise("gone", stem="elsewhere")
    timed = make_exercise("after", speed=SPEED)
    made = [timed, TWICE, KERNEL, missing]
    return grade(Notebooks(folder), made, judge, tmp_path / "out")


def test_the_grade_is_written(record: Record, tmp_path: Path) -> None:
    written = json.loads((tmp_path / "out" / "grade.json").read_text())
    assert written == json.loads(json.dumps(record.to_json()))
    assert written["complete"] is True and written["seed"] == 7
    assert written["sandbox"]["name"] in ("bubblewrap", "landlock", "plain")
    assert written["sandbox"]["trusted"] is (written["sandbox"]["name"] != "plain")
    assert [r["words"] for r in written["results"]] == [
        "correct (CPU)",
        "wrong",
        "wrong",
        "no answer",
    ]
    assert (written["earned"], written["possible"], written["points"]) == (
        7.5,
        37.5,
        40.0,
    )


def test_gradescope_reads_the_same_record(record: Record, tmp_path: Path) -> None:
    written = json.loads((tmp_path / "out" / "results.json").read_text())
    assert written["score"] == record.earned
    assert sum(test["score"] for test in written["tests"]) == record.earned
    assert sum(test["max_score"] for test in written["tests"]) == record.possible
    assert {test["status"] for test in written["tests"]} == {"passed", "failed"}
    assert "\x1b" not in json.dumps(written, ensure_ascii=False)


class _Page(HTMLParser):
    """Collects what a page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_report_stands_alone(record: Record, tmp_path: Path) -> None:
    text = (tmp_path / "out" / "report.html").read_text()
    page = _Page()
    page.feed(text)
    assert not {"script", "img", "iframe", "link", "object"} & {t for t, _ in page.tags}
    for _, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        assert not any("//" in (attributes.get(n) or "") for n in ("src", "href"))
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert "&lt;script&gt;alert(1)" in text and "\x1b" not in text
    assert "out[32] was never written" in text
    assert 'class="kw-untouched"' in text
    for result in record.results:
        assert f'id="{result.exercise}"' in text


def test_the_report_says_what_is_not_finished_and_not_trusted(record: Record) -> None:
    assert "not finished" not in html_report(record)
    record.finished = None
    record.sandbox = {**record.sandbox, "name": "plain", "trusted": False}
    text = html_report(record)
    assert "Grading is not finished." in text and "Not trusted" in text


def test_kernels_stand_under_the_measured_roof(record: Record) -> None:
    detail = {"band": "gold", "ratio": 0.95, "gbps": 4000.0, "peer_gbps": 4200.0}
    timed = Result(
        "after", "small", "T", "core", "passed", "correct (GPU), fast (GPU): gold", "",
        gates=(Gate("fast", "passed", "", detail),),
        parts=(Part("correct", 7.5, 7.5), Part("speed", 2.5, 2.5)),
    )  # fmt: skip
    record.results = [timed]
    text = html_report(record)
    assert "Under the roof" in text and "4,000 GB/s" in text
    assert "copy: 4,200 GB/s measured" in text
    assert "fast (GPU): gold 95%" in text


def test_counted_operations_stand_under_a_roof_of_their_own(record: Record) -> None:
    detail = {
        "band": "gold", "ratio": 0.9, "gbps": 60.0, "peer_gbps": 70.0,
        "peer": "cuBLAS", "tflops": 45.0, "peer_tflops": 50.0,
    }  # fmt: skip
    record.results = [
        Result(
            "after", "small", "T", "ladder", "passed", "fast (GPU): gold", "",
            gates=(Gate("fast", "passed", "", detail),),
            parts=(Part("speed", 2.5, 2.5),),
        )
    ]  # fmt: skip
    text = html_report(record)
    assert "45.0 TFLOP/s" in text and "cuBLAS: 50.0 TFLOP/s measured" in text
    assert "GB/s" not in text


@pytest.mark.parametrize("rich", [True, False], ids=["rich", "plain"])
def test_the_table_in_a_terminal(
    record: Record, rich: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    out = io.StringIO()
    print_record(record, out)
    text = out.getvalue()
    assert "\x1b" not in text
    for words in ("small", "elsewhere", "✓ correct (CPU)", "not measured"):
        assert words in text
    assert "Points: 7.5 / 37.5 (40 in all)" in text
    assert "Seed: 7 (SEED=7 grades the same again)" in text
    assert "Sandbox: " in text and "no notebook NN_elsewhere.ipynb" in text


def test_the_plain_table_lines_up(record: Record) -> None:
    lines = [line for line in plain_table(record).splitlines() if " / " in line]
    assert len(lines) == 4
    assert len({line.index(" / ") for line in lines if line.endswith("/ 10")}) == 1


def test_progress_in_a_file_is_a_line_an_exercise(record: Record) -> None:
    out = io.StringIO()
    progress = Progress(2, out)
    progress.begin("after")
    progress.step("compiling")
    progress.end(record.results[0])
    assert re.fullmatch(
        r"\[1/2\] ✓ after: correct \(CPU\) "
        r"\(7\.5 / 7\.5 \(10 in all\), \d+\.\d s\)\n",
        out.getvalue(),
    )


@pytest.mark.parametrize(
    "name", ["01_small", "small", "01_small (1)", "small (2)", "01_small-Copy1"]
)
def test_a_second_copy_in_a_folder_is_found(name: str, tmp_path: Path) -> None:
    write_notebook(tmp_path / f"{name}.ipynb", [RIGHT.format(name="twice")])
    assert Notebooks(tmp_path).answer(TWICE).source


@pytest.mark.parametrize("name", ["02_smaller", "01_small_change (1)", "other"])
def test_another_chapters_notebook_is_not_taken(name: str, tmp_path: Path) -> None:
    write_notebook(tmp_path / f"{name}.ipynb", [RIGHT.format(name="twice")])
    assert "no notebook NN_small.ipynb" in Notebooks(tmp_path).answer(TWICE).trouble


def test_every_exercise_is_written_as_it_is_done(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_notebook(tmp_path / "01_small.ipynb", [RIGHT.format(name="twice")])
    seen: list[tuple[int, bool]] = []
    whole = grading._write

    def watched(out: Path, record: Record) -> None:
        whole(out, record)
        written = json.loads((out / "grade.json").read_text())
        seen.append((len(written["results"]), written["complete"]))

    monkeypatch.setattr(grading, "_write", watched)
    grade(Notebooks(tmp_path), [TWICE, AFTER], judge, tmp_path / "out")
    assert seen == [(0, False), (1, False), (2, False), (2, True)]


def test_a_link_in_the_place_of_a_report_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "grade.json").symlink_to(victim)
    write_atomically(tmp_path / "grade.json", "{}")
    assert victim.read_text() == "mine"
    assert (tmp_path / "grade.json").read_text() == "{}"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["grade.json", "victim"]


@pytest.fixture
def small_course(monkeypatch: pytest.MonkeyPatch) -> None:
    """A course of two exercises, for the command line."""
    every = {"twice": TWICE, "after": AFTER}
    monkeypatch.setattr(grading, "all_exercises", lambda: every)
    monkeypatch.setattr(exercises, "all_exercises", lambda: every)


@pytest.fixture
def run(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command line with the tests' judge."""
    import autograder.judge.judge
    from autograder.worker import system

    class Lent:
        def __init__(self, **options: Any) -> None:
            judge.seed = options["seed"] if options["seed"] is not None else judge.seed

        def __enter__(self) -> Judge:
            return judge

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(autograder.judge.judge, "Judge", Lent)
    # The tests' own process stays as it is.
    monkeypatch.setattr(system, "set_dumpable", lambda value: None)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = command.main(["grade", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    before = judge.seed
    yield call
    judge.seed = before


@pytest.mark.usefixtures("small_course")
def test_the_command_line(run: Callable[..., Any], tmp_path: Path) -> None:
    cells = [RIGHT.format(name="twice"), python_cell("return x", "after")]
    write_notebook(tmp_path / "01_small.ipynb", cells)
    out = tmp_path / "grades"
    code, text, _ = run("--submission", str(tmp_path), "--seed", "5", "--out", str(out))
    assert code == 0, "a low score is no failure of the grader's"
    assert "[1/2] ✓ twice" in text and "[2/2] ✗ after" in text
    assert "Points: 10 / 20" in text and "Seed: 5" in text
    assert "Sandbox: " in text and str(out / "report.html") in text
    assert {p.name for p in out.iterdir()} == {
        "grade.json",
        "results.json",
        "report.html",
    }


@pytest.mark.usefixtures("small_course")
def test_only_some(run: Callable[..., Any], tmp_path: Path) -> None:
    write_notebook(tmp_path / "01_small.ipynb", [RIGHT.format(name="twice")])
    path = str(tmp_path / "01_small.ipynb")
    out = str(tmp_path / "out")
    code, text, _ = run("--submission", path, "--only", "twice", "--out", out)
    assert code == 0 and "Points: 10 / 10" in text
    code, _, err = run("--submission", path, "--only", "nonesuch", "--out", out)
    assert code == 2
    assert "no exercise and no chapter is called so. Exercises: twice, after." in err
    assert "Is twice meant?" in run("--submission", path, "--only", "twise")[2]


@pytest.mark.usefixtures("small_course")
def test_a_submission_that_is_not_there(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    code, _, err = run("--submission", str(tmp_path / "gone"), "--out", out)
    assert code == 2 and "no such folder or notebook" in err


@pytest.mark.usefixtures("small_course")
def test_what_cannot_hold_an_answer_is_one_line(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    text, foreign = tmp_path / "a.txt", tmp_path / "foreign"
    text.write_text("no notebook")
    foreign.mkdir()
    (foreign / "shopping.ipynb").write_text("{}")
    for path, says in (
        (text, "it is no notebook; wanted a file whose name ends in .ipynb"),
        (foreign, "no chapter's notebook is in this folder, such as NN_small.ipynb"),
    ):
        code, said, err = run("--submission", str(path), "--out", str(out))
        assert (code, said, err.count("\n")) == (2, "", 1)
        assert f"SUBMISSION={path}: {says}" in err
    assert not out.exists()


def test_nothing_solved_ends_in_where_to_begin(record: Record) -> None:
    assert "Nothing is solved yet" not in html_report(record)
    stub = Result("one", "small", "T", "core", "failed", "not attempted", "as given")
    gone = Result("two", "small", "T", "core", "failed", "no answer", "no cell")
    record.results = [stub, gone]
    out = io.StringIO()
    print_record(record, out)
    last = "Nothing is solved yet. Start with `make lab`: one is the first."
    assert out.getvalue().rstrip().endswith(last)


def test_what_was_not_attempted_did_not_fail_to_compile(record: Record) -> None:
    gate = Gate("compiles", "failed", "as given", {"words": "not attempted"})
    record.results = [
        Result("one", "small", "T", "core", "failed", "not attempted", "", (gate,))
    ]
    page = html_report(record)
    assert "Nothing is solved yet" in page and "not attempted" in page
    assert "<strong>compiles</strong>" not in page


def test_ids_are_whole_in_a_narrow_terminal(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name = "arithmetic_intensity_of_all"
    result = Result(name, "small", "T", "core", "failed", "correct, moves too much", "")
    record.results = [result]
    out = io.StringIO()
    print_record(record, out)
    table, _, _ = out.getvalue().partition("✗ " + name)
    assert name in table and "moves" in table


def test_a_python_without_torch_is_one_line() -> None:
    import subprocess

    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from autograder.__main__ import main\n"
        "sys.exit(main(['grade']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "has no torch. Leave PYTHON= away" in done.stderr


@pytest.mark.usefixtures("small_course")
def test_the_graders_own_failure_is_an_exit_code(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(arguments: Any) -> Any:
        raise RuntimeError("no")

    every = {"twice": make_exercise("twice", reference=broken)}
    monkeypatch.setattr(grading, "all_exercises", lambda: every)
    write_notebook(tmp_path / "01_small.ipynb", [RIGHT.format(name="twice")])
    out = str(tmp_path / "out")
    code, text, _ = run("--submission", str(tmp_path), "--out", out)
    assert code == 3 and "the grader itself failed" in text


def test_select_takes_ids_and_stems() -> None:
    every = list(exercises.all_exercises().values())
    references = open_submission("solutions")
    assert select([], references) == every
    chapter = [e for e in every if e.stem == "vector_add"]
    assert chapter and select(["vector_add"], references) == chapter
    assert select(["01_vector_add"], references) == chapter
    some = [e.id for e in select(["add_one, gelu", "block_sum"], references)]
    assert some == ["add_one", "block_sum", "gelu"]
    # The chapter and its exercise have one name.
    only = ["vector_add/vector_add"]
    assert [e.id for e in select(only, references)] == ["vector_add"]
    with pytest.raises(
        ValueError, match="Is vector_add_vec4 or vector_add or .* meant"
    ):
        select(["vector_add/nonesuch"], references)


def test_nothing_but_torch_is_needed_to_grade() -> None:
    """The GPU machine has neither Jupyter nor rich: nothing may import them early."""
    import subprocess

    program = (
        "import sys\n"
        "for name in ('rich', 'IPython', 'nbformat', 'jinja2', 'jupytext', 'numba',\n"
        "             'ipywidgets', 'matplotlib', 'yaml', 'pytest'):\n"
        "    sys.modules[name] = None\n"
        "import autograder.__main__, autograder.grade, autograder.learner.check\n"
        "import autograder.judge.speed, autograder.report.table, autograder.regions\n"
        "import autograder.authoring.chapters\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
