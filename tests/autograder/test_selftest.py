"""A machine that does not fit is said, with its mend, and is nobody's zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from small_exercises import (
    KERNEL,
    RIGHT,
    RIGHT_KERNEL,
    make_exercise,
    write_notebook,
)

from autograder import __main__ as command
from autograder.exercise import Structure
from autograder.grade import grade
from autograder.ideals import moves
from autograder.judge import gates
from autograder.judge.judge import Judge
from autograder.judge.results import Gate
from autograder.judge.selftest import LANGUAGES
from autograder.report.table import summary
from autograder.submission.submitted import Cells
from autograder.supervisor import sandbox
from autograder.supervisor.workers import ForkServer
from autograder.worker import landlock

Altered = Callable[[str], Judge]

WITHOUT = """\
import sys


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.startswith({name!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Hidden())
"""
# What numpy says since 2.4 of an array of one element, wherever Triton asks.
REFUSING = """\
import sys
from importlib.machinery import PathFinder


class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name != "triton.runtime.interpreter":
            return None
        spec = PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            module._implicit_cvt = refuse

        spec.loader.exec_module = exec_module
        return spec


def refuse(argument):
    raise TypeError("only 0-dimensional arrays can be converted to Python scalars")


sys.meta_path.insert(0, Refusing())
"""
COUNTED = make_exercise(
    "doubled",
    "cuda",
    counts=moves(),
)
TRITON = make_exercise(
    "twice",
    prelude="import torch\nimport triton\nimport triton.language as tl\n",
    structure=(Structure(holds=("tl.load",)),),
)
TRITON_CELL = """\
# exercise: twice
@triton.jit
def double(x, out, n, SIZE: tl.constexpr):
    lanes = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    values = tl.load(x + lanes, mask=lanes < n)
    tl.store(out + lanes, 2 * values, mask=lanes < n)


def twice(x):
    out = torch.empty_like(x)
    double[(triton.cdiv(len(x), 32),)](x, out, len(x), SIZE=32)
    return out
"""


@pytest.fixture(autouse=True)
def without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers read what a test puts beside the course's packages."""
    rung: sandbox.TierName = "landlock" if landlock.version() > 0 else "plain"
    tier = sandbox._try(rung)
    assert tier is not None
    monkeypatch.setattr(sandbox, "detect", lambda: tier)


@pytest.fixture
def altered(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Altered]:
    """Make a judge whose workers begin with some Python of ours."""
    made: list[Judge] = []

    def alter(code: str) -> Judge:
        folder = tmp_path_factory.mktemp("altered")
        (folder / "sitecustomize.py").write_text(code)
        monkeypatch.syspath_prepend(folder)  # what workers may read
        environment = ForkServer._environment
        monkeypatch.setattr(
            ForkServer,
            "_environment",
            lambda server: environment(server) | {"PYTHONPATH": str(folder)},
        )
        made.append(Judge(seed=7, device="cpu"))
        return made[-1]

    yield alter
    for judge in made:
        judge.close()


def test_a_machine_that_fits_checks_everything(judge: Judge) -> None:
    names = set(LANGUAGES)
    if find_spec("amaranth") is None:
        names.remove("Amaranth")
    assert {name: dict(judge.unfit(name)) for name in names} == {
        name: {} for name in names
    }


def test_without_nvrtc_only_the_machine_code_is_not_checked(altered: Altered) -> None:
    judge = altered(WITHOUT.format(name="cuda.core"))
    result = judge.grade(COUNTED, Cells({"doubled": RIGHT_KERNEL}))
    assert (result.status, result.earned, result.possible) == ("passed", 10.0, 10.0)
    assert result.words == "correct (emulated), structure not checked"
    gate = result.gate("structure")
    assert gate is not None and gate.status == "not checked"
    assert "pip install cuda-core" in gate.message and gate.message in result.message
    # What can be judged is.
    wrong = RIGHT_KERNEL.replace("2 * x", "3 * x")
    assert judge.grade(COUNTED, Cells({"doubled": wrong})).earned == 0.0
    # Nothing else is touched.
    assert not judge.unfit("Triton") and not judge.unfit("Python")


def test_without_a_compiler_nothing_of_cuda_is_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with Judge(seed=7, device="cpu") as judge:
        result = judge.grade(COUNTED, Cells({"doubled": RIGHT_KERNEL}))
        assert result.status == "infrastructure error"
        assert (result.words, result.earned, result.possible) == ("not checked", 0, 0)
        assert "apt-get install g++" in result.message
        python = judge.grade(
            make_exercise(), Cells({"twice": RIGHT.format(name="twice")})
        )
        assert python.passed and python.earned == 10.0


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (REFUSING, "only 0-dimensional arrays"),
        (WITHOUT.format(name="triton"), "No module named 'triton'"),
    ],
    ids=["numpy refuses", "no triton"],
)
def test_a_triton_that_does_not_fit_is_nobodys_zero(
    altered: Altered, code: str, said: str, tmp_path: Path
) -> None:
    judge = altered(code)
    record = grade(Cells({"twice": TRITON_CELL}), [TRITON], judge, tmp_path)
    (result,) = record.results
    assert (result.words, result.earned, result.possible) == ("not checked", 0, 0)
    assert said in result.message and "make setup" in result.message
    assert record.notes and said in record.notes[-1]
    assert any(said in line for line in summary(record))
    assert said in (tmp_path / "grade.json").read_text()
    assert "make setup" in (tmp_path / "report.html").read_text()


def test_no_class_is_graded_on_a_machine_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "class").mkdir()
    write_notebook(tmp_path / "class" / "ada.ipynb", [RIGHT_KERNEL])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    out = tmp_path / "out"
    options = ["--only", "transpose", "--out", str(out), "--device", "cpu"]
    code = command.main(["class", str(tmp_path / "class"), *options])
    assert code == command.NOT_GRADED and not out.exists()
    said = capsys.readouterr().err
    assert "No class is graded" in said and "apt-get install g++" in said


def test_a_grader_that_does_not_start_is_said(altered: Altered, tmp_path: Path) -> None:
    judge = altered("import os\nos._exit(1)\n")
    record = grade(Cells({"doubled": RIGHT_KERNEL}), [KERNEL], judge, tmp_path)
    assert "the grader itself failed" in record.results[0].message
    assert record.results[0].words == "not graded" and record.possible == 0
    assert "the grader itself failed" in judge.examine([KERNEL])[0]


def test_a_learner_cannot_have_a_gate_left_out(judge: Judge) -> None:
    """A cell runs while it is loaded, and may say that a tool is missing."""
    forged = (
        "# exercise: twice\nimport json, os\n"
        "what = {'ok': False, 'blobs': [], 'kind': 'toolchain', 'message': 'none'}\n"
        "text = json.dumps(what).encode()\n"
        "os.write(101, len(text).to_bytes(4, 'little') + text)\nos._exit(0)\n"
    )
    result = judge.grade(make_exercise(), Cells({"twice": forged}))
    assert (result.status, result.earned, result.possible) == ("failed", 0.0, 10.0)
    assert not judge.unfit("Python")


def test_a_tool_that_goes_away_while_it_is_graded_is_found_out(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The self-test was passed, and then a disk is full, or a package is removed."""
    trouble = {"ok": False, "kind": "toolchain", "message": "no C++ compiler"}
    monkeypatch.setattr(gates, "prepare", lambda *a: trouble)
    try:
        result = judge.grade(KERNEL, Cells({"doubled": RIGHT_KERNEL}))
    finally:
        monkeypatch.undo()
        judge._unfit.pop("CUDA C++")
    assert (result.status, result.words) == ("infrastructure error", "not checked")
    assert "no C++ compiler" in result.message


def test_a_deadline_missed_once_is_not_believed(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    through = gates.pass_through
    late = [[Gate("compiles", "timeout", "too late")]]

    def slow_once(*arguments: object) -> list[Gate]:
        return late.pop() if late else through(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(gates, "pass_through", slow_once)
    with Judge(seed=7, device="cpu") as other:
        assert not other.unfit("Python")
    assert not late
