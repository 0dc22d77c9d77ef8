"""Code that does not end is said on its line; what is only slow is left alone."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from autograder.supervisor.sandbox import PACKAGES

# Each body runs in a process of its own with 1 s to compute; its parent holds one of
# them still for a while, as a machine does that has others to serve.
PROGRAM = """
import json, os, signal, sys, tempfile, time
sys.path.insert(0, sys.argv[1])
from autograder.worker.cells import Namespace
from autograder.worker.overtime import ended_after

BODIES = {
    "loop": "def body():\\n    while True: pass\\n",
    "deep": "def one():\\n    while 1: pass\\n\\ndef body():\\n    one()\\n",
    "caught": "def body():\\n    while 1:\\n        try: raise Exception\\n"
    "        except BaseException: pass\\n",
    "asleep": "import time\\ndef body():\\n    time.sleep(30)\\n",
    "late": "import time\\ndef body():\\n    while True: time.sleep(0.02)\\n",
    "slow": "import time\\ndef body():\\n    end = time.process_time() + 0.5\\n"
    "    while time.process_time() < end: pass\\n",
}
WALL = {BODIES["late"]: 0.5}

def child(source, reply):
    folder = tempfile.mkdtemp()
    namespace = Namespace(folder)
    namespace.load("", [{"id": "mine", "language": "python", "source": source}])
    said = lambda trouble: os.write(reply, json.dumps(trouble.to_json()).encode())
    with ended_after(1.0, WALL.get(source, 60.0), namespace.files, said):
        namespace.answer("body", "function")()
    os.write(reply, b'{"kind": "ended"}')
    os._exit(0)

found = {}
for name, source in BODIES.items():
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        child(source, writer)
    os.close(writer)
    if name == "slow":
        time.sleep(0.2)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(2.0)
        os.kill(pid, signal.SIGCONT)
    found[name] = json.loads(os.read(reader, 1 << 16) or b'{"kind": "nothing"}')
    os.waitpid(pid, 0)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What was said of each body."""
    ran = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(PACKAGES)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


@pytest.mark.parametrize(
    ("name", "line", "text"),
    [
        ("loop", 2, "    while True: pass"),
        ("deep", 2, "    while 1: pass"),
    ],
)
def test_a_loop_is_named_by_its_line(
    found: dict[str, Any], name: str, line: int, text: str
) -> None:
    trouble = found[name]
    assert trouble["kind"] == "timeout"
    assert (trouble["line"], trouble["text"], trouble["cell"]) == (line, text, "mine")
    assert trouble["message"] == (
        "still running after 1 s. Does the loop around it end? "
        "Or is this more work than need be?"
    )


def test_what_catches_everything_is_ended_too(found: dict[str, Any]) -> None:
    assert found["caught"]["kind"] == "timeout"
    assert found["caught"]["line"] in (2, 3, 4)


def test_what_waits_is_asked_for_what(found: dict[str, Any]) -> None:
    assert found["asleep"]["line"] == 3
    assert found["asleep"]["message"].endswith("What does it wait for?")


def test_the_clock_ends_what_is_left(found: dict[str, Any]) -> None:
    assert found["late"]["line"] == 3
    assert found["late"]["message"].startswith("still running after 0.5 s.")


def test_a_busy_machine_ends_nothing(found: dict[str, Any]) -> None:
    """Half a second of computing took over two by the clock."""
    assert found["slow"]["kind"] == "ended"
