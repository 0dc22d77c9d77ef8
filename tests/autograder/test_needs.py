"""A cell that calls a reader's function waits for it, and says so in a line."""

from __future__ import annotations

import pytest

from autograder.exercises import all_exercises
from autograder.learner import needs
from autograder.learner.recorder import Recorder
from autograder.regions import cell_source
from autograder.submission.ipynb import needs_in

CELL = ["# needs: flash_triton\n", "flash_triton(q, k, v)\n"]


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(needs, "recorder", lambda: made)
    return made


def run(record: Recorder, name: str, *, solved: bool) -> None:
    record.record(cell_source(all_exercises()[name], solved))


def said(lines: list[str]) -> str:
    (line,) = needs.or_what_it_waits_for(lines)
    assert line.startswith("print(")
    return line


def test_it_waits_until_the_cell_was_run_and_changed(record: Recorder) -> None:
    assert "waits for flash_triton: run that exercise's cell first" in said(CELL)
    run(record, "flash_triton", solved=False)
    assert "flash_triton is not solved yet" in said(CELL)
    run(record, "flash_triton", solved=True)
    assert "waits for absorb_tile" in said(CELL), "flash_triton calls it"
    run(record, "absorb_tile", solved=False)
    assert "absorb_tile is not solved yet" in said(CELL)
    run(record, "absorb_tile", solved=True)
    assert needs.or_what_it_waits_for(CELL) == CELL


def test_a_kernel_in_cuda_is_told_from_its_stub(record: Recorder) -> None:
    cell = ["# needs: add_one\n", "add_one[1, 8](x, out)\n"]
    run(record, "add_one", solved=False)
    assert "add_one is not solved yet" in said(cell)
    run(record, "add_one", solved=True)
    assert needs.or_what_it_waits_for(cell) == cell


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("# needs: a, b\nx", ("a", "b")),
        ("\n#needs:a\nx", ("a",)),
        ("# needs: a\n# needs: b\nx\n# needs: c", ("a", "b")),
        ("# needs: a and b\nx", ()),
        ("x = 1  # needs: a", ()),
        ("", ()),
    ],
)
def test_what_a_first_line_names(source: str, names: tuple[str, ...]) -> None:
    assert needs_in(source) == names


def test_a_shell_runs_the_line_instead(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    monkeypatch.setattr(needs, "recorder", Recorder)
    needs.listen()
    assert shell.run_cell("# needs: add_one\n1 / 0").success
    assert "run that exercise's cell first" in capsys.readouterr().out
    assert not shell.run_cell("1 / 0", silent=True).success
