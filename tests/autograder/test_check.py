"""``check`` and ``hint`` as a learner meets them, in a real IPython shell."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython", reason="check is for notebooks")
from small_exercises import KERNEL, RIGHT, RIGHT_KERNEL, SHORT, TWICE, python_cell

from autograder.judge.judge import Judge
from autograder.learner import check as learner
from autograder.learner.recorder import Recorder
from autograder.learner.show import CheckResult, Notice

EVERY = {"twice": TWICE, "doubled": KERNEL}


class Shell:
    """A notebook's kernel, with its cells run for real."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    def run(self, cell: str) -> Any:
        """Run a cell and return its value; what it raises is its own affair."""
        return self.shell.run_cell(cell, silent=False).result


@pytest.fixture(scope="module")
def ipython() -> Iterator[Any]:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    shell.run_cell("import torch\nimport kernelwright as kw\n%load_ext kernelwright")
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture
def notebook(
    ipython: Any, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shell]:
    """A notebook whose checks use the tests' judge, public cases only."""
    made = Recorder()
    made.attach(ipython)
    made.cells.clear()
    monkeypatch.setattr(learner, "recorder", lambda: made)
    monkeypatch.setattr(learner, "all_exercises", lambda: EVERY)
    monkeypatch.setattr(learner, "_warm_judge", lambda: judge)
    monkeypatch.setattr(learner, "_hints_given", {})
    monkeypatch.setattr(judge, "public", True)
    ipython.user_ns.update(check=learner.check, hint=learner.hint)
    yield Shell(ipython)
    ipython.events.unregister("post_run_cell", made._ran)


def test_a_right_kernel(notebook: Shell) -> None:
    notebook.run(RIGHT_KERNEL)
    result = notebook.run("check(doubled)")
    assert isinstance(result, CheckResult) and result and result.passed
    assert "2 public checks passed" in repr(result)
    assert "Try three times." in repr(result)
    assert "✓ The exercise doubled" in result._repr_html_().replace("</b>", "")


def test_a_right_function_and_its_id(notebook: Shell) -> None:
    notebook.run(RIGHT.format(name="twice"))
    assert notebook.run("check(twice)").passed
    assert notebook.run("check('twice')").passed


def test_a_wrong_kernel_shows_where(notebook: Shell) -> None:
    notebook.run(RIGHT_KERNEL.replace("i < n", "i < n - 1"))
    result = notebook.run("check(doubled)")
    assert not result
    assert "out[32] was never written; wanted" in result.message
    text = repr(result)
    assert "................................_" in text and "_ never written" in text
    assert 'class="kw-untouched"' in result._repr_html_()


def test_reading_the_output_is_told_from_not_writing_it(notebook: Shell) -> None:
    notebook.run(RIGHT_KERNEL.replace("out[i] =", "out[i] +="))
    message = notebook.run("check(doubled)").message
    # Whichever gate says it: it was written, and read before that.
    assert "never written" not in message
    assert "reads out[0]" in message or "out[0] was read before" in message


def test_the_cell_is_checked_and_not_the_object(notebook: Shell) -> None:
    notebook.run("def helper(x):\n    return 2 * x")
    notebook.run(python_cell("return helper(x)"))
    assert notebook.run("twice(torch.ones(2))").tolist() == [2, 2]
    assert "name 'helper' is not defined" in notebook.run("check(twice)").message


def test_a_cell_that_raised_is_the_one_that_is_checked(notebook: Shell) -> None:
    notebook.run(RIGHT_KERNEL)
    notebook.run(RIGHT_KERNEL.replace("2 * x[i];", "2 * x[i]"))
    result = notebook.run("check(doubled)")
    assert result.result.words == "does not compile"
    assert result.message.count("line 6") == 1, "a line is named once"


def test_the_latest_cell_counts(notebook: Shell) -> None:
    notebook.run(python_cell("return x"))
    assert not notebook.run("check(twice)")
    notebook.run(python_cell("return 2 * x"))
    assert notebook.run("check(twice)")


WRONG_KERNEL = RIGHT_KERNEL.replace("2 * x", "3 * x")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "has no `// exercise: doubled` line"),
        ("// exercise: doubld\n", "says `exercise: doubld`, which is no exercise"),
    ],
)
def test_a_later_cell_without_the_line_is_the_one_checked(
    notebook: Shell, line: str, says: str
) -> None:
    notebook.run(RIGHT_KERNEL)
    assert notebook.run("check(doubled)")
    notebook.run(WRONG_KERNEL.replace("// exercise: doubled\n", line))
    result = notebook.run("check(doubled)")
    assert not result and "out[0] is" in result.message
    assert says in result.note
    assert "`make grade` will not find it" in " ".join(repr(result).split())
    assert "// exercise: doubled" in result._repr_html_()
    notebook.run(WRONG_KERNEL)
    result = notebook.run("check(doubled)")
    assert not result and not result.note
    # What does not compile leaves the older object behind: the screen counts.
    notebook.run(RIGHT_KERNEL.replace("// exercise: doubled\n", ""))
    notebook.run(RIGHT_KERNEL.replace("2 * x[i];", "2 * x[i]"))
    result = notebook.run("check(doubled)")
    assert result.result.words == "does not compile" and not result.note


def test_a_later_function_without_the_line_is_the_one_checked(
    notebook: Shell,
) -> None:
    notebook.run(RIGHT.format(name="twice"))
    notebook.run("def twice(x):\n    return x")
    result = notebook.run("check(twice)")
    assert not result and "has no `# exercise: twice` line" in result.note


def test_a_misspelt_line_is_pointed_out(notebook: Shell) -> None:
    notebook.run(RIGHT_KERNEL.replace("exercise: doubled", "exercise: doubeld"))
    message = notebook.run("check('doubled')").message
    assert "`// exercise: doubeld`, and no exercise is called so" in message


@pytest.mark.parametrize(
    "body",
    [
        "import os; os._exit(0)",
        "raise SystemExit",
        "while True: pass",
        "import ctypes; ctypes.string_at(0)",
    ],
)
def test_check_never_raises(notebook: Shell, body: str) -> None:
    notebook.run(python_cell(body))
    result = notebook.run("check(twice)")
    assert isinstance(result, CheckResult) and not result
    assert result._repr_html_() and repr(result)


@pytest.mark.parametrize("what", ["3", "None", "print", "'nonesuch'", "kw", "check"])
def test_something_that_is_no_answer(notebook: Shell, what: str) -> None:
    for verb in ("check", "hint"):
        result = notebook.run(f"{verb}({what})")
        assert isinstance(result, Notice) and not result.passed
        assert "is no exercise's answer" in repr(result)
        assert "twice, doubled" in result._repr_html_()


def test_an_exercise_that_was_not_run(notebook: Shell) -> None:
    message = notebook.run("check('twice')").message
    assert "the cell of twice has not been run since the kernel started" in message


def test_the_graders_own_failure_is_no_verdict(
    notebook: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise OSError("no room")

    monkeypatch.setattr(learner, "_warm_judge", broken)
    notebook.run(RIGHT.format(name="twice"))
    result = notebook.run("check(twice)")
    assert isinstance(result, Notice) and "OSError: no room" in repr(result)


def test_an_interrupt_is_said(notebook: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(learner, "_warm_judge", interrupted)
    notebook.run(RIGHT.format(name="twice"))
    assert "interrupted" in repr(notebook.run("check(twice)"))


def test_hints_come_one_by_one(notebook: Shell) -> None:
    notebook.run(RIGHT.format(name="twice"))
    shown = [repr(notebook.run("hint(twice)")) for _ in range(4)]
    assert shown == [
        "Hint 1 of 3: first",
        "Hint 2 of 3: second",
        "Hint 3 of 3, the last: third",
        "Hint 3 of 3, the last: third",
    ]


def test_markup_in_what_is_shown_stays_text(notebook: Shell) -> None:
    notebook.run(
        python_cell(
            "print('<script>alert(1)</script>\\x1b[31mred\\x1b]0;title\\x07')\n"
            "raise ValueError('<img src=x onerror=alert(1)>\\x1b[2J')"
        )
    )
    result = notebook.run("check(twice)")
    html = result._repr_html_()
    assert "<script>" not in html and "<img" not in html
    assert "&lt;script&gt;" in html and "&lt;img" in html
    assert "\x1b" not in html and "\x1b" not in repr(result)


def test_a_warm_check_is_quick(notebook: Shell) -> None:
    notebook.run(RIGHT_KERNEL)
    notebook.run("check(doubled)")
    started, before = time.monotonic(), cpu_time()
    assert notebook.run("check(doubled)")
    # What it computes; the clock also counts what others compute on this machine.
    assert cpu_time() - before < 2.0
    assert time.monotonic() - started < 20.0


def cpu_time() -> float:
    """Return what this process, all below it and all that these reaped computed."""
    used: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            used[pid] = sum(map(int, fields[11:15]))
            children.setdefault(int(fields[1]), []).append(pid)
    below = [os.getpid()]
    for pid in below:
        below += children.get(pid, [])
    return sum(used[pid] for pid in below) / os.sysconf("SC_CLK_TCK")


def test_without_a_notebook(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    import kernelwright as kw

    monkeypatch.setattr(learner, "recorder", lambda: Recorder())
    monkeypatch.setattr(learner, "all_exercises", lambda: EVERY)
    monkeypatch.setattr(learner, "_warm_judge", lambda: judge)
    kernel = kw.cuda.compile(RIGHT_KERNEL.replace("%%cuda", ""))["doubled"]
    assert learner.check(kernel).passed


def test_the_package_hands_out_check_and_hint() -> None:
    import autograder

    given: Callable[[object], object] = autograder.check
    assert given is learner.check and autograder.hint is learner.hint
    with pytest.raises(AttributeError, match="no attribute 'judge_me'"):
        _ = autograder.judge_me  # type: ignore[attr-defined]


def test_deadlines_of_a_check_are_bearable() -> None:
    assert SHORT.case < learner.DEADLINES.case <= 12
