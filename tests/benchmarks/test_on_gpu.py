"""The GPU script: its limits, its commands, and what it leaves when steps fail."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.__main__ import has_values

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "on_gpu.sh"
LEAST_SPARE_S = 20  # of the 600 that a command on a lent machine may take


def script(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environ},
    )


def usage() -> tuple[dict[str, int], dict[str, tuple[int, list[str]]]]:
    """Return the limits of the steps, and sum and members of the batches."""
    said = script().stdout
    first, second = said.split("batch, in the order")
    steps = {m[1]: int(m[2]) for m in re.finditer(r"(?m)^(\S+) +(\d+) s  ", first)}
    batches = {
        m[1]: (int(m[2]), m[3].split())
        for m in re.finditer(r"(?m)^(batch\d+) +(\d+) s  (.+)$", second)
    }
    return steps, batches


STEPS, BATCHES = usage()


def limit_of(step: str) -> int:
    """Return a step's limit, in seconds; families have steps of two kinds."""
    kind = step.rpartition("-")[2]
    return STEPS[step] if step in STEPS else STEPS[f"STEM-{kind}"]


def test_the_script_is_well_formed() -> None:
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)
    run = script()
    assert run.returncode == 2
    assert "DRY=1" in run.stdout and not run.stderr


def test_a_batch_fits_into_a_command_and_knows_its_steps() -> None:
    assert list(BATCHES) == [f"batch{n}" for n in range(1, 18)]
    for said, members in BATCHES.values():
        assert said == sum(limit_of(member) for member in members)
        assert said <= 600 - LEAST_SPARE_S
    every = [member for _, members in BATCHES.values() for member in members]
    assert len(set(every)) == len(every)
    assert every.index("sweep-softmax") < every.index("softmax-bench")


def commands(*words: str) -> Mapping[str, list[str]]:
    """Return the commands that a dry run prints."""
    run = script(*words, DRY="1")
    assert run.returncode == 0, run.stderr
    pairs = (line.partition(": ") for line in run.stdout.splitlines())
    return {name: shlex.split(command) for name, _, command in pairs}


@pytest.mark.parametrize("step", [s.replace("STEM", "fusion") for s in STEPS])
def test_a_step_runs_what_is_there_within_its_limit(step: str) -> None:
    command = commands(step)[step]
    assert command[:3] == ["timeout", "--signal=INT", "--kill-after=10"]
    assert command[3] == str(limit_of(step))
    for before, word in itertools.pairwise(command):
        if before == "-m" and word.startswith("benchmarks"):
            path = ROOT / word.replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()
        if word.startswith("tests/"):
            assert (ROOT / word.partition("::")[0]).exists()


def test_three_batches_are_all_that_a_gpu_is_timed_by() -> None:
    asked = commands("bench1", "bench2", "bench3").values()
    shared = [word for command in asked for word in command[8:]]
    stems = (path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py"))
    assert sorted(shared) == sorted(filter(has_values, stems))


def test_a_step_that_is_not_known_is_refused() -> None:
    run = script("launch", "nonsense", DRY="1")
    assert run.returncode == 2
    assert "no step or batch nonsense" in run.stderr and not run.stdout


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """Put programs in the places of ``timeout`` and of Python that note and fail."""
    bounded = tmp_path / "timeout"
    bounded.write_text(
        "#!/bin/sh\n"
        'echo "asked: $*"\n'
        'case "$*" in\n'
        "  *benchmarks.launch*) exit 124 ;;\n"
        "  *_sweep*) exit 1 ;;\n"
        "esac\n"
    )
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    for program in (bounded, python):
        program.chmod(0o755)
    return {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "OUT": str(tmp_path / "out"),
        "PYTHON": str(python),
    }


def test_it_goes_on_past_a_failure_and_packs_what_there_is(
    machine: dict[str, str],
) -> None:
    out = Path(machine["OUT"])
    out.mkdir()
    (out / "of_another.log").write_text("kept")
    run = script("sweep-softmax", "launch", "softmax-tests", **machine)
    assert run.returncode == 2, run.stderr
    rows = [line.split()[:3] for line in run.stdout.splitlines()[-4:-1]]
    assert [row[:2] for row in rows] == [
        ["sweep-softmax", "1"], ["launch", "124"], ["softmax-tests", "0"],
    ]  # fmt: skip
    assert "124 (its limit)" in (out / "summary.txt").read_text()
    assert sorted(path.name for path in out.iterdir()) == [
        "gpu.tar.gz", "of_another.log", "summary.txt",
    ]  # fmt: skip
    with tarfile.open(out / "gpu.tar.gz") as packed:
        names = {name.removeprefix("./") for name in packed.getnames()}
        log = packed.extractfile("softmax-tests.log")
        assert log is not None
        asked = log.read().decode()
    assert {"sweep-softmax.log", "launch.log", "softmax-tests.log"} <= names
    assert "summary.txt" in names and "began" not in names
    # This Python has no pytest-timeout: the step's own limit is the only one.
    assert "--timeout" not in asked and "--import-mode=importlib" in asked
