"""The sandbox ladder: what is found, what each rung shows and hides."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_exercises import RIGHT, SHORT, TWICE, left_behind, python_cell

from autograder.judge.judge import Judge
from autograder.submission.submitted import Cells
from autograder.supervisor import sandbox
from autograder.worker import landlock
from kernelwright.cache import cache_in, cached


@pytest.fixture
def fresh() -> Iterator[None]:
    """Let each test detect anew."""
    sandbox.detect.cache_clear()
    yield
    sandbox.detect.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_a_rung_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_SANDBOX", "plain")
    tier = sandbox.detect()
    assert tier.name == "plain" and not tier.trusted and "not trusted" in tier.words
    sandbox.detect.cache_clear()
    monkeypatch.setenv("KERNELWRIGHT_SANDBOX", "fortress")
    with pytest.raises(ValueError, match="wanted one of bubblewrap, landlock, plain"):
        sandbox.detect()


@pytest.mark.usefixtures("fresh")
def test_the_best_rung_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELWRIGHT_SANDBOX", raising=False)
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    expected = "landlock" if landlock.version() else "plain"
    assert sandbox.detect().name == expected
    sandbox.detect.cache_clear()
    monkeypatch.setattr(landlock, "version", lambda: 0)
    assert sandbox.detect().name == "plain"


def _rungs() -> list[str]:
    found = []
    for rung in ("bubblewrap", "landlock", "plain"):
        if sandbox._try(rung) is not None:  # type: ignore[arg-type]
            found.append(rung)
    return found


READS = python_cell(
    f"open({str(sandbox.PACKAGES / 'autograder/judge/values.py')!r})\nreturn 2 * x"
)


@pytest.mark.parametrize("rung", ["bubblewrap", "landlock", "plain"])
@pytest.mark.usefixtures("fresh")
def test_each_rung_grades(rung: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if rung not in _rungs():
        pytest.skip(f"this machine does not offer {rung}")
    monkeypatch.setenv("KERNELWRIGHT_SANDBOX", rung)
    with Judge(seed=1, device="cpu", deadlines=SHORT) as judge:
        assert judge.server.tier.name == rung
        right = judge.grade(TWICE, Cells({"twice": RIGHT.format(name="twice")}))
        assert right.passed, right.message
        ends = judge.grade(TWICE, Cells({"twice": python_cell("while True: pass")}))
        assert ends.status == "timeout"
        reads = judge.grade(TWICE, Cells({"twice": READS}))
        assert reads.passed is (rung == "plain"), reads.message
        leaves = judge.grade(
            TWICE,
            Cells(
                {
                    "twice": python_cell(
                        "import os, time\n"
                        "if os.fork() == 0:\n"
                        "    os.setsid()\n"
                        "    time.sleep(600)\n"
                        "return 2 * x"
                    )
                }
            ),
        )
        assert leaves.passed
        assert not left_behind(judge)


def test_without_namespaces_orphans_are_found(judge: Judge) -> None:
    """The subreaper's way: what left its session and its parent is still ended."""
    with judge.server.spawn(private=False) as worker:
        header = {
            "op": "prepare",
            "prelude": "import os, time\n"
            "if os.fork() == 0:\n"
            "    os.setsid()\n"
            "    os.fork()\n"
            "    time.sleep(600)\n"
            "def f(): pass\n",
            "cells": [],
            "name": "f",
            "entry": "function",
        }
        answer, _ = worker.ask(header, deadline_s=60)
        assert answer["ok"] is True
        worker.end()
        assert not worker.ended_privately
    assert not left_behind(judge)


HELD = """
import os, sys, tempfile
sys.path.insert(0, sys.argv[1])
from autograder.worker.keeper import remove
if os.getuid() == 0:
    os.setuid(65534)  # no mode keeps root out
folder = tempfile.mkdtemp()
os.chdir(folder)
outside = tempfile.mkdtemp()
os.chmod(outside, 0o500)
os.symlink(outside, "link")
os.makedirs("closed/inner")
open("closed/inner/file", "w").close()
os.chmod("closed/inner", 0)
os.chmod("closed", 0)
for _ in range(1500):
    os.mkdir("deep")
    os.chdir("deep")
os.chdir("/")
remove(folder)
assert not os.path.exists(folder), os.listdir(folder)
assert os.stat(outside).st_mode & 0o777 == 0o500
os.rmdir(outside)
"""


def test_a_folder_that_resists_is_removed() -> None:
    command = [sys.executable, "-c", HELD, str(sandbox.PACKAGES)]
    subprocess.run(command, check=True, timeout=120)


def test_hidden_folders_are_not_among_the_readable() -> None:
    readable = [Path(p) for p in sandbox.readable()]
    for name in ("solutions", "tests", "chapters", ".git", "autograder/exercises"):
        secret = sandbox.PACKAGES / name
        assert not any(secret.is_relative_to(p) for p in readable), name
    assert any((sandbox.PACKAGES / "kernelwright").is_relative_to(p) for p in readable)
    assert any(Path(sys.executable).resolve().is_relative_to(p) for p in readable)


def test_landlock_holds_in_a_process_of_its_own(tmp_path: Path) -> None:
    if not landlock.version():
        pytest.skip("this kernel has no Landlock")
    (tmp_path / "mine").mkdir()
    (tmp_path / "secret").write_text("s")
    program = f"""
import os, sys
sys.path.insert(0, {str(sandbox.PACKAGES)!r})
from autograder.worker import landlock, system
system.forbid_new_privileges()
landlock.restrict(["/usr", "/nowhere"], [{str(tmp_path / "mine")!r}])
open({str(tmp_path / "mine" / "file")!r}, "w").write("mine")
for path, mode in (({str(tmp_path / "secret")!r}, "r"), ("/usr/kw", "w")):
    try:
        open(path, mode)
    except OSError:
        pass
    else:
        sys.exit(path)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    assert (tmp_path / "mine" / "file").read_text() == "mine"


def test_a_cache_that_is_only_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    with cache_in(shared):
        made = cached("room", "abcdef", ".txt", lambda p: p.write_text("one"))
    assert made.is_relative_to(shared)
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(own))
    monkeypatch.setenv("KERNELWRIGHT_CACHE_SHARED", str(shared))
    found = cached("room", "abcdef", ".txt", lambda p: p.write_text("two"))
    assert found == made and found.read_text() == "one"
    other = cached("room", "fedcba", ".txt", lambda p: p.write_text("three"))
    assert other.is_relative_to(own)
    assert [p.name for p in shared.rglob("*.txt")] == ["abcdef.txt"]


def test_a_compiler_outside_the_system_can_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "gcc" / "bin" / "g++"
    for folder in ("bin", "lib", "secrets"):
        (tmp_path / "gcc" / folder).mkdir(parents=True)
    compiler.write_text("#!/bin/sh\n", encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))

    visible = sandbox._visible.__wrapped__()

    assert compiler.parent in visible and tmp_path / "gcc" / "lib" in visible
    assert tmp_path / "gcc" / "secrets" not in visible
