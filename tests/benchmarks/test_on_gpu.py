"""The GPU steps: their limits, their commands, and what they leave when they fail."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks.__main__ import has_values
from tests import on_gpu

ROOT = Path(__file__).parents[2]
LEAST_SPARE_S = 20  # of the 600 that a command on a lent machine may take
MEMBERS = [name for members in on_gpu.BATCHES.values() for name in members]
NAMES = sorted({*on_gpu.STEPS, *MEMBERS, *(f"softmax-{kind}" for kind in on_gpu.KINDS)})


def step(name: str) -> on_gpu.Step:
    """Return a step that there is."""
    found = on_gpu.step_of(name)
    assert found is not None, name
    return found


def test_a_batch_fits_into_a_command_and_knows_its_steps() -> None:
    for members in on_gpu.BATCHES.values():
        assert sum(step(name).limit for name in members) <= 600 - LEAST_SPARE_S
    assert len(set(MEMBERS)) == len(MEMBERS)
    assert MEMBERS.index("softmax-sweep") < MEMBERS.index("softmax-bench")


@pytest.mark.parametrize("name", [*NAMES, *on_gpu.LIMITS])
def test_a_step_runs_what_is_there(name: str) -> None:
    words = step(name).command
    for before, word in itertools.pairwise(words):
        if before == "-m" and word.startswith("benchmarks"):
            path = ROOT / word.replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()
        if word.startswith("tests/"):
            assert (ROOT / word).exists()
    if name.endswith("-sweep"):
        assert "def sweeps()" in (ROOT / f"benchmarks/{words[-1]}.py").read_text()


def test_three_batches_are_all_that_a_gpu_is_timed_by() -> None:
    stems = (path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py"))
    shared = " ".join(on_gpu.JUDGED).split()
    assert sorted(shared) == sorted(filter(has_values, stems))


def test_it_is_a_program_that_lists_and_prints_and_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, on_gpu.__file__, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert asked().returncode == 2 and "DRY=1" in asked().stdout
    monkeypatch.setenv("DRY", "1")
    assert "no step or batch nonsense" in asked("speed-gold", "nonsense").stdout
    said = asked("batch2").stdout
    assert said.startswith("speed-gold: timeout --signal=INT --kill-after=10 560 ")


def test_without_its_plugin_pytest_is_not_asked_for_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "--timeout" in on_gpu.pytest()
    monkeypatch.setattr(on_gpu, "find_spec", lambda name: None)
    assert "--timeout" not in on_gpu.pytest()


def test_it_goes_on_past_a_failure_and_packs_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, results = tmp_path / "out", tmp_path / "results"
    steps = {
        "slow": (1, 5, ["sh", "-c", "echo begun; sleep 60"]),
        "fails": (9, 1, ["sh", "-c", "echo not shown; echo why; exit 3"]),
        "stores": (9, 5, ["sh", "-c", "echo {} > $KERNELWRIGHT_RESULTS/new.json"]),
    }
    for name, value in {
        "OUT": out, "ROOM": out / "steps", "ROOT": tmp_path, "RESULTS": results,
        "STEPS": steps, "BATCHES": {"all": list(steps)},
    }.items():  # fmt: skip
        monkeypatch.setattr(on_gpu, name, value)
    for name in ("KERNELWRIGHT_RESULTS", "PYTHONUNBUFFERED", "PYTHONPATH"):
        monkeypatch.setenv(name, "")  # as they are set, and so that they are restored
    for folder, name in ((results, "old.json"), (out, "of_another.log")):
        folder.mkdir()
        (folder / name).write_text("kept")
        os.utime(folder / name, (0, 0))
    assert on_gpu.main("all") == 2
    said = capsys.readouterr().out
    assert "begun" in said and "why" in said and "not shown" not in said
    summary = (out / "summary.txt").read_text()
    assert [line.split()[:3] for line in summary.splitlines()[1:]] == [
        ["slow", "124", "(its"], ["fails", "3", "0"], ["stores", "0", "0"],
    ]  # fmt: skip
    assert sorted(path.name for path in out.iterdir()) == [
        "gpu.tar.gz", "of_another.log", "summary.txt",
    ]  # fmt: skip
    with tarfile.open(out / "gpu.tar.gz") as packed:
        assert {name for name in packed.getnames() if name} == {
            "slow.log", "fails.log", "stores.log", "summary.txt", "results/new.json",
        }  # fmt: skip
        log = packed.extractfile("slow.log")
        assert log is not None and log.read() == b"begun\n"
