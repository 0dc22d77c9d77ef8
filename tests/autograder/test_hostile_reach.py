"""What an answer must not reach: the grader, its machine, other answers.

``grade_both`` proves after each of them that the next exercise is still graded.
"""

from __future__ import annotations

import os
import time

import pytest
from hostile import GradeBoth, fails
from small_exercises import (
    left_behind,
    python_cell,
)

from autograder.judge.judge import Judge
from autograder.supervisor import sandbox
from kernelwright.cache import cache_root


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


def test_the_users_own_cache_is_out_of_reach(grade_both: GradeBoth) -> None:
    """Compiled answers lie there: of the solutions, and of the learner's notebook."""
    if not sandbox.detect().trusted:
        pytest.skip("this machine offers no sandbox")
    room = cache_root().resolve() / "emulator"
    room.mkdir(parents=True, exist_ok=True)
    result = grade_both(python_cell(f"import os\nos.listdir({str(room)!r})"))
    fails(result, "Error")


SECRETS = {
    "solutions": "kernelwright/../solutions/__init__.py",
    "answers": "autograder/exercises/vector_add/scale_offset.cu",
    "exercises": "autograder/exercises/__init__.py",
    "mistakes": "autograder/exercises/vector_add/vector_add.toml",
    "prints": "autograder/exercises/vector_add/prints/vector_add.json",
    "tests": "tests/autograder/test_hostile_reach.py",
    "history": ".git/HEAD",
    "reference": "autograder/judge/values.py",
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
