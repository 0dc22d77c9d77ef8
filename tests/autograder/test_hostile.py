"""Hostile and broken answers: each ends in its own line, and costs itself alone.

``grade_both`` proves after each of them that the next exercise is still graded.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from small_exercises import (
    KERNEL,
    RIGHT,
    RIGHT_KERNEL,
    left_behind,
    make_exercise,
    python_cell,
)

from autograder import sandbox
from autograder.exercise import Structure
from autograder.judge import Judge
from autograder.results import Result
from autograder.submission import Cells
from kernelwright.cache import cache_root

GradeBoth = Callable[..., Result]
_SPENT: list[float] = []


def fails(result: Result, words: str, status: str = "failed") -> None:
    """Assert how a result failed, that it earned nothing, and what it says."""
    assert result.status == status, result
    assert result.earned == 0.0
    assert result.possible == result.points
    assert words in result.message, result.message


def test_the_right_answer_passes(grade_both: GradeBoth) -> None:
    result = grade_both(RIGHT.format(name="twice"))
    assert result.passed and result.earned == 10.0
    assert result.words == "correct (emulated)"


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
        ("return y", "NameError: name 'y' is not defined"),
        ("import sys\nsys.exit(0)", "the cell called exit (0)"),
        ("raise SystemExit", "the cell called exit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise BaseException('x' * 10**7)", "BaseException: xxx"),
        ("def f(): return f()\nreturn f()", "RecursionError"),
        ("raise NotImplementedError", "nothing is written here yet"),
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
    "body",
    [
        "while True: pass",
        "import time\ntime.sleep(1000)",
        "import signal\nfor s in range(1, 32):\n"
        "    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: pass",
        "import os\nif os.fork() == 0: os.setsid()\nwhile True: pass",
        "while True: print('x' * 10_000)",
    ],
)
def test_answers_that_do_not_end(grade_both: GradeBoth, body: str) -> None:
    fails(grade_both(python_cell(body)), "still running after 3 s", "timeout")


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


SYNTAX = RIGHT_KERNEL.replace("2 * x[i];", "2 * x[i]")
LOOP = RIGHT_KERNEL.replace("out[i] =", "while (true) out[i] =")
WILD = RIGHT_KERNEL.replace("out[i] =", "*(float*)8 =")
SEGFAULT = RIGHT_KERNEL.replace("out[i] =", "((float*)x)[1ll << 44] =")


def test_the_right_kernel_passes(grade_both: GradeBoth) -> None:
    assert grade_both(RIGHT_KERNEL, KERNEL).passed


def test_a_syntax_error_in_cuda(grade_both: GradeBoth) -> None:
    result = grade_both(SYNTAX, KERNEL)
    fails(result, "line 6")
    assert result.words == "does not compile"
    assert result.gates[0].detail["diagnostics"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("doubled(", "double_it(", "the cell defines no 'doubled'"),
        ("float* out, int n", "double* out, int n", "float64"),
        ("float* out, int n", "float* out", "n"),
        ("if (i < n)", "if (i <= n)", "it writes outside of out, past its last"),
        ("if (i < n)", "if (i < n && i != 32)", "out[32] was never written"),
        ("2 * x[i]", "x[i]", "This is x, not 2 * x."),
        ("2 * x[i]", "2 * x[i] + (i == 5)", "Block 0, thread 5 wrote it."),
        ("out[i] = ", "((float*)x)[i] = out[i] = ", "it changes its input x"),
    ],
)
def test_kernels_that_are_wrong(
    grade_both: GradeBoth, old: str, new: str, words: str
) -> None:
    fails(grade_both(RIGHT_KERNEL.replace(old, new), KERNEL), words)


def test_a_kernel_that_does_not_end(grade_both: GradeBoth) -> None:
    result = grade_both(LOOP, KERNEL)
    fails(result, "line 6", "timeout")


@pytest.mark.parametrize("cell", [WILD, SEGFAULT], ids=["null", "wild"])
def test_a_kernel_with_a_wild_access(grade_both: GradeBoth, cell: str) -> None:
    result = grade_both(cell, KERNEL)
    assert result.status in ("failed", "crashed") and result.earned == 0.0
    assert "line 6" in result.message or "memory" in result.message


def test_cuda_text_that_ends_the_process(grade_both: GradeBoth) -> None:
    cell = RIGHT_KERNEL.replace("__global__", "#include <unistd.h>\n__global__")
    cell = cell.replace("out[i] =", "_exit(0); out[i] =")
    fails(grade_both(cell, KERNEL), "ended its own process", "crashed")


def test_cuda_text_that_runs_while_it_is_loaded(grade_both: GradeBoth) -> None:
    cell = RIGHT_KERNEL.replace(
        "__global__",
        "#include <stdlib.h>\nstatic int early = (_Exit(0), 1);\n__global__",
    )
    result = grade_both(cell, KERNEL)
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


def test_the_users_own_cache_is_out_of_reach(grade_both: GradeBoth) -> None:
    """Compiled answers lie there: of the solutions, and of the learner's notebook."""
    if not sandbox.detect().trusted:
        pytest.skip("this machine offers no sandbox")
    room = cache_root().resolve() / "emulator"
    room.mkdir(parents=True, exist_ok=True)
    result = grade_both(python_cell(f"import os\nos.listdir({str(room)!r})"))
    fails(result, "Error")


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


EARLY = r"""
#ifndef __CUDACC_RTC__
#include <unistd.h>
static int speak() {
    const char text[] = "{\"ok\": true, \"blobs\": [27]}/*0000*/   LDG.E.128 R1 ;";
    const unsigned char size[] = {27, 0, 0, 0};
    write(101, size, 4);
    write(101, text, sizeof text - 1);
    return 1;
}
static int early = speak();
#endif
"""


def test_a_kernel_cannot_forge_its_machine_code(judge: Judge) -> None:
    """What runs when a library is loaded must not speak for the compiler."""
    cell = RIGHT_KERNEL.replace("__global__", EARLY + "__global__", 1)
    wants = Structure(holds=("LDG.E.128",), message="No 128-bit load.")
    exercise = make_exercise("doubled", "cuda", structure=(wants,))
    result = judge.grade(exercise, Cells({"doubled": cell}))
    assert not result.passed and result.earned == 0.0


def _needs_namespace(judge: Judge) -> None:
    with judge.server.spawn() as worker:
        worker.end()
        if not worker.ended_privately:
            pytest.skip("this machine gives workers no process namespace")


def test_a_fork_bomb(grade_both: GradeBoth, judge: Judge) -> None:
    _needs_namespace(judge)
    started = time.monotonic()
    result = grade_both(python_cell("import os\nwhile True: os.fork()"))
    assert result.status in ("crashed", "timeout") and result.earned == 0.0
    assert "256 processes" in result.message or "still running" in result.message
    assert time.monotonic() - started < 60
    assert not left_behind(judge)


def test_processes_left_behind_are_ended(grade_both: GradeBoth, judge: Judge) -> None:
    body = (
        "import os\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        import time\n"
        "        time.sleep(1000)\n"
        "    os._exit(0)\n"
        "return 2 * x"
    )
    assert grade_both(python_cell(body)).passed
    assert not left_behind(judge)


SECRETS = {
    "solutions": "kernelwright/../solutions/__init__.py",
    "answers": "autograder/answers/vector_add/scale_offset.cu",
    "exercises": "autograder/exercises/__init__.py",
    "wrong": "autograder/wrong/vector_add/vector_add/guard_missing.cu",
    "tests": "tests/autograder/test_hostile.py",
    "history": ".git/HEAD",
    "oracle": "autograder/oracle.py",
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_the_repository_is_out_of_reach(grade_both: GradeBoth, secret: str) -> None:
    if not sandbox.detect().trusted:
        pytest.skip("this machine offers no sandbox")
    path = (sandbox.PACKAGES / secret).resolve()
    assert path.exists(), f"{path}: a test of reading it would prove nothing"
    result = grade_both(python_cell(f"open({str(path)!r}).read()\nreturn 2 * x"))
    fails(result, "Error")
    assert "No such file" in result.message or "Permission denied" in result.message


@pytest.mark.parametrize("module", ["solutions.vector_add", "autograder.exercises"])
def test_answers_cannot_be_imported(grade_both: GradeBoth, module: str) -> None:
    if not sandbox.detect().trusted:
        pytest.skip("this machine offers no sandbox")
    result = grade_both(python_cell(f"import {module}\nreturn 2 * x"))
    assert not result.passed and "Error" in result.message


@pytest.mark.parametrize(
    "body",
    [
        "open('/usr/mine', 'w')",
        "import os\nopen(os.path.dirname(torch.__file__) + '/mine', 'w')",
        "import os\nopen(os.environ['KERNELWRIGHT_CACHE_SHARED'] + '/mine', 'w')",
        "import socket\nsocket.create_connection(('127.0.0.1', 22), 1)",
        "import socket\nsocket.create_connection(('10.0.0.1', 80), 1)",
        "import os\nopen(f'/proc/{os.getppid()}/mem', 'r+b')",
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "if libc.ptrace(16, os.getppid(), 0, 0) < 0: raise OSError('refused')",
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "if libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) < 0: raise OSError('no')",
    ],
)
def test_the_machine_is_out_of_reach(grade_both: GradeBoth, body: str) -> None:
    if not sandbox.detect().trusted:
        pytest.skip("this machine offers no sandbox")
    fails(grade_both(python_cell(f"{body}\nreturn 2 * x")), "Error")


def test_no_process_of_the_graders_can_be_opened(grade_both: GradeBoth) -> None:
    if not sandbox.detect().trusted:
        pytest.skip("this machine offers no sandbox")
    supervisor = os.getpid()
    body = (
        "import os\n"
        "opened = []\n"
        f"pids = {{*filter(str.isdigit, os.listdir('/proc')), '{supervisor}', '1'}}\n"
        "for pid in pids:\n"
        "    if int(pid) != os.getpid():\n"
        "        for name in ('mem', 'environ', 'maps'):\n"
        "            try: opened.append(open(f'/proc/{pid}/{name}', 'rb').name)\n"
        "            except OSError: pass\n"
        "assert not opened, opened\n"
        "return 2 * x"
    )
    result = grade_both(python_cell(body))
    # Listing /proc may itself be refused: then nothing was opened either.
    assert result.passed or "PermissionError" in result.message, result.message


def test_the_environment_is_scrubbed(
    grade_both: GradeBoth, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_TEST_SECRET", "hush")
    body = (
        "import os, gc\n"
        "assert 'hush' not in str(dict(os.environ))\n"
        "assert os.environ['HOME'] == os.getcwd() == os.environ['TMPDIR']\n"
        "return 2 * x"
    )
    assert grade_both(python_cell(body)).passed


def test_no_reference_and_no_seed_in_the_worker(grade_both: GradeBoth) -> None:
    body = (
        "import gc, sys\n"
        "names = [n for n in sys.modules if n.startswith('autograder')]\n"
        "allowed = ('autograder', 'autograder.worker')\n"
        "bad = [n for n in names if n not in allowed\n"
        "       and not n.startswith('autograder.worker.')]\n"
        "assert not bad, bad\n"
        "for thing in gc.get_objects():\n"
        "    if isinstance(thing, dict):\n"
        "        assert 'reference' not in thing or 'seed' not in thing\n"
        "return 2 * x"
    )
    result = grade_both(python_cell(body))
    assert result.passed, result.message


def test_an_answer_finds_nothing_of_the_one_before(grade_both: GradeBoth) -> None:
    body = (
        "import os, pathlib\n"
        "for place in ('/tmp', '/dev/shm', '/var/tmp', os.getcwd()):\n"
        "    try: (pathlib.Path(place) / 'left').write_text('mine')\n"
        "    except OSError: pass\n"
        "return 2 * x"
    )
    assert grade_both(python_cell(body)).passed
    body = (
        "import os, pathlib\n"
        "for place in ('/tmp', '/dev/shm', '/var/tmp', os.getcwd()):\n"
        "    assert not (pathlib.Path(place) / 'left').exists(), place\n"
        "return 2 * x"
    )
    if sandbox.detect().trusted:
        result = grade_both(python_cell(body))
        # Where looking is refused, nothing was found.
        assert result.passed or "PermissionError" in result.message, result.message
