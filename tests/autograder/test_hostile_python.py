"""Hostile and broken answers in Python: each ends in its own line.

``grade_both`` proves after each of them that the next exercise is still graded.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hostile import GradeBoth, fails
from small_exercises import (
    RIGHT,
    python_cell,
)


def test_the_right_answer_passes(grade_both: GradeBoth) -> None:
    result = grade_both(RIGHT.format(name="twice"))
    assert result.passed and result.earned == 10.0
    assert result.words == "correct (CPU)"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return 3", "twice returned a int; wanted a float32 tensor"),
        ("pass", "twice returned None"),
        ("return [2 * x, x]", "twice returned 2 values; wanted 1 tensor"),
        ("return (2 * x).numpy()", "returned a ndarray"),
        ("return torch.nn.Parameter(2 * x)", "returned a Parameter"),
        ("return (2 * x).to_sparse()", "returned a sparse_coo Tensor"),
        ("return (2 * x)[:-1]", "with shape (32); wanted (33,)"),
        ("return (2 * x).reshape(1, -1)", "with shape (1, 33); wanted (33,)"),
        ("return 2 * x.double()", "out as float64; wanted float32"),
        ("return (2 * x).to('meta')", "out on meta; wanted cpu"),
        ("x *= 2\nreturn x", "it changes its input x"),
        ("return x", "This is x, not 2 * x."),
        ("return x * x", "This is x squared."),
        ("return 2 * x + 1e-3", "33 elements are wrong"),
        ("return torch.empty_like(x)", "out[0] is nan"),
        ("raise ValueError('no luck')", "line 3 (`raise ValueError('no luck')`)"),
        ("return y", "name 'y' is not defined. If another cell defines it, move"),
        ("return display(x)", "display() is the notebook's: call it in another cell."),
        ("check(twice)", "Take check() out of this cell: it has one of its own."),
        ("return x * float(input())", "Nobody answers input() while a cell is graded"),
        ("import sys\nsys.exit(0)", "the cell called exit (0)"),
        ("raise SystemExit", "the cell called exit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise BaseException('x' * 10**7)", "BaseException: xxx"),
        ("def f(): return f()\nreturn f()", "RecursionError"),
        ("raise NotImplementedError", "nothing is written here yet"),
        (
            "class E(Exception):\n    def __str__(self): raise E()\nraise E()",
            "line 5 (`raise E()`): E: E",
        ),
    ],
)
def test_wrong_returns_and_exceptions(
    grade_both: GradeBoth, body: str, words: str
) -> None:
    fails(grade_both(python_cell(body)), words)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("# exercise: twice\ndef twice(x)\n    return x\n", "line 2 (`def twice(x)`)"),
        ("# exercise: twice\n%time\ndef twice(x): return x\n", "plain Python only"),
        ("# exercise: twice\ndef double(x): return 2 * x\n", "It defines: double."),
        ("# exercise: twice\ntwice = 3\n", "twice is a int; wanted a function"),
        ("# exercise: twice\nimport sys; sys.exit(3)\n", "the cell called exit (3)"),
        ("# exercise: twice\n1 / 0\n", "line 2 (`1 / 0`): ZeroDivisionError"),
        ("# exercise: twice\nimport nonesuch\n", "ModuleNotFoundError"),
        ("%%cuda\n// exercise: twice\n", "must be Python, without %%cuda"),
        ("# exercise: twice\nx = '\x00'\n", "null bytes"),
    ],
)
def test_cells_that_cannot_be_loaded(
    grade_both: GradeBoth, cell: str, words: str
) -> None:
    fails(grade_both(cell), words)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import os\nos._exit(0)", "ended its own process"),
        ("import os\nos._exit(7)", "exit code 7"),
        ("import ctypes\nctypes.string_at(0)", "segmentation fault"),
        ("import os\nos.abort()", "SIGABRT"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("import os\nos.closerange(0, 4096)\nreturn 2 * x", "ended"),
        ("import os\nos.write(101, b'\\xff' * 64)", "no answer of the grader's"),
        ("import os\nos.write(101, b'\\x02\\0\\0\\0[]')", "no answer of the grader's"),
        (
            'import os\nt = b\'{"ok": true, "blobs": [4]}\'\n'
            "os.write(101, len(t).to_bytes(4, 'little') + t + b'\\0' * 4)\nreturn x",
            "not of the right size",
        ),
        (
            "import os\nt = b'[' * 5000\n"
            "os.write(101, len(t).to_bytes(4, 'little') + t)\nreturn x",
            "nests too deep",
        ),
    ],
)
def test_answers_that_end_or_forge(
    grade_both: GradeBoth, body: str, words: str
) -> None:
    fails(grade_both(python_cell(body)), words, "crashed")


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ("while True: pass", "line 3 (`while True: pass`): still running after"),
        (
            "import time\ntime.sleep(1000)",
            "line 4 (`time.sleep(1000)`): still running after 3 s. What does it wait",
        ),
        (
            "import signal\nfor s in range(1, 32):\n"
            "    try: signal.signal(s, signal.SIG_IGN)\n"
            "    except (OSError, ValueError): pass\nwhile True: pass",
            "line 7 (`while True: pass`): still running after",
        ),
        (
            "import os\nif os.fork() == 0: os.setsid()\nwhile True: pass",
            "line 5 (`while True: pass`): still running after",
        ),
        (
            "while True:\n    try: raise SystemExit\n    except BaseException: pass",
            "s. Does the loop around it end?",
        ),
        # How much of its time is its own depends on who reads what it prints.
        ("while True: print('x' * 10_000)", "still running after"),
        # While C holds Python's lock nobody can look: the supervisor ends it.
        ("import itertools\nsum(itertools.count())", "still running after 8 s"),
    ],
)
def test_answers_that_do_not_end(grade_both: GradeBoth, body: str, where: str) -> None:
    fails(grade_both(python_cell(body)), where, "timeout")


def test_a_cell_that_does_not_end(grade_both: GradeBoth) -> None:
    cell = "# exercise: twice\nx = 0\nwhile x < 1:\n    x -= 1\n"
    result = grade_both(cell)
    fails(result, "s. Does the loop around it end?", "timeout")
    assert result.gates[-1].name == "compiles" and result.message.startswith("line ")


def test_an_answer_that_kills_all_it_can(grade_both: GradeBoth) -> None:
    body = "import os, signal\nos.kill(-1, signal.SIGKILL)\nos.kill(os.getppid(), 9)"
    result = grade_both(python_cell(body))
    assert result.status in ("failed", "crashed") and result.earned == 0.0


def test_a_100_gb_allocation(grade_both: GradeBoth) -> None:
    body = "a = torch.ones(25_000_000_000)\nreturn 2 * x"
    fails(grade_both(python_cell(body)), "can't allocate memory")
    body = "a = bytearray(100 << 30)\nreturn 2 * x"
    fails(grade_both(python_cell(body)), "MemoryError")


def test_100_000_lines_cost_nothing(grade_both: GradeBoth) -> None:
    body = "for i in range(100_000): print('line', i)\nreturn 2 * x"
    result = grade_both(python_cell(body))
    assert result.passed
    assert len(result.printed) < 70_000
    assert "bytes left out" in result.printed
    assert result.printed.startswith("line 0\n")


def test_a_printed_score_is_only_text(grade_both: GradeBoth) -> None:
    body = (
        'print(\'{"score": 100, "status": "passed"}\')\n'
        "print('twice: correct (GPU) 10 / 10')\nreturn x"
    )
    result = grade_both(python_cell(body))
    fails(result, "This is x, not 2 * x.")
    assert "correct (GPU)" in result.printed


@pytest.mark.parametrize(
    "patch",
    [
        "torch.equal = lambda *a, **k: True",
        "torch.allclose = torch.testing.assert_close = lambda *a, **k: True",
        "torch.Tensor.__eq__ = lambda *a: True",
        "import json; json.dumps = lambda *a, **k: '{}'",
        "import autograder.worker.run as r; r.to_bytes = lambda t: b'1' * 132",
        "import autograder.worker.serve as s\n"
        "s.run_case = lambda *a: ({'ok': True}, [])",
        "import builtins; builtins.isinstance = lambda *a: True",
        "import time; time.monotonic = lambda: 0.0",
    ],
)
def test_patched_libraries_earn_nothing(grade_both: GradeBoth, patch: str) -> None:
    result = grade_both(f"# exercise: twice\n{patch}\ndef twice(x): return x\n")
    assert not result.passed and result.earned == 0.0


FORGED = (
    "import json, os\n"
    "def say(**what):\n"
    "    text = json.dumps({{'blobs': [], **what}}).encode()\n"
    "    os.write(101, len(text).to_bytes(4, 'little') + text)\n"
    "say({what})\n"
    "os._exit(0)\n"
)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("ok=False, kind='toolchain', message='no compiler here'", "no compiler here"),
        ("ok=False, kind='missing', message=[1, 2], line={}", ""),
        ("ok=False, kind='compile', line=1e999, message='x'", "x"),
        ("ok=False, kind='compile', line=-3, diagnostics=[{'line': 1e999}]", ""),
        ("ok=False, kind=['a'], message='\\x1b[2J<b>', cell=7, text=7", "<b>"),
        ("ok=1", ""),
        ("ok='yes'", ""),
    ],
)
def test_forged_answers_to_prepare(
    grade_both: GradeBoth, what: str, words: str
) -> None:
    """A cell runs while it is loaded, and may write the answer to that itself."""
    result = grade_both("# exercise: twice\n" + FORGED.format(what=what))
    fails(result, words)
    assert json.dumps(result.to_json(), allow_nan=False)
    assert "\x1b" not in result.message


def test_a_forged_answer_to_a_case(grade_both: GradeBoth) -> None:
    what = "ok=True, returned=[{'type': 'Tensor'}] * 3, trespass=3, changed={'x': 1}"
    fails(grade_both(python_cell(FORGED.format(what=what))), "twice returned 3 values")
    what = (
        "ok=True, trespass={'out': 'x' * 10000, 'y': 1}, changed=['nonesuch'], "
        "returned=[{'type': 'Tensor', 'dtype': 'float32', 'shape': [33], "
        "'device': 'cpu'}]"
    )
    fails(grade_both(python_cell(FORGED.format(what=what))), "it gave no outputs")


@pytest.mark.parametrize(
    "what",
    ["ok=False", "ok=None, message=[1]", "ok=True, changed=[[1], {}], trespass=[[1]]"],
)
def test_a_reply_of_no_form_is_the_answers_own_failure(
    grade_both: GradeBoth, what: str
) -> None:
    """Were it the grader's, the exercise would leave the points that can be had."""
    result = grade_both(python_cell(FORGED.format(what=what)))
    assert (result.status, result.earned, result.possible) == ("failed", 0.0, 10.0)


def test_half_a_character(grade_both: GradeBoth) -> None:
    fails(grade_both("# exercise: twice\nprint('\ud800')\n"), "no 'twice'")
    result = grade_both(python_cell("print('\\ud800')\nraise ValueError('\\udfff')"))
    fails(result, "ValueError")
    assert result.message.encode() and result.source.encode()


def test_a_folder_of_links_and_files_is_removed(
    grade_both: GradeBoth, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("mine")
    body = (
        "import os\n"
        f"os.symlink({str(victim)!r}, f'a{{len(x)}}')\n"
        "os.symlink('/', f'b{len(x)}')\n"
        "for i in range(500): open(f'f{i}', 'w').close()\n"
        "os.makedirs('/'.join(['d'] * 200), exist_ok=True)\n"
        "return 2 * x"
    )
    result = grade_both(python_cell(body))
    assert result.passed, result.message
    assert (victim / "file").read_text() == "mine"


def test_the_machine_runs_out_of_the_workers_memory_first(
    grade_both: GradeBoth,
) -> None:
    body = "assert open('/proc/self/oom_score_adj').read() == '1000\\n'\nreturn 2 * x"
    result = grade_both(python_cell(body))
    assert result.passed, result.message
