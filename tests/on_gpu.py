#!/usr/bin/env python3
"""What a machine with a GPU must show: ``[DRY=1] tests/on_gpu.py STEP|BATCH…``.

Each step has a limit of its own and runs with this Python: nothing is installed, and
neither network nor Jupyter is needed. Results go to $OUT (default: grades/gpu):
summary.txt and gpu.tar.gz, which holds the logs and whatever was stored, by its path in
the repository. DRY=1 prints the commands and runs nothing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
OUT = Path(os.environ.get("OUT", ROOT / "grades" / "gpu")).absolute()
ROOM = OUT / "steps"  # what they leave, until it is packed
RUN = [sys.executable, "-m"]


class Step(NamedTuple):
    """A command, the seconds it may take, how many lines of its log are shown."""

    limit: int
    shown: int
    command: list[str]


def pytest(*words: str) -> list[str]:
    """Run tests; where pytest-timeout is absent the step's own limit must do."""
    options = ["--timeout", "140"]
    if find_spec("pytest_timeout") is None:
        options = ["-o", "addopts=-ra --import-mode=importlib"]
        options += ["-W", "ignore::pytest.PytestConfigWarning"]
    return [*RUN, "pytest", "-q", *options, *words]


def grade(*words: str) -> list[str]:
    """Grade the reference solutions."""
    make = ["make", "--no-print-directory", "grade", f"PYTHON={sys.executable}"]
    return [*make, "SUBMISSION=solutions", *words]


def step_of(name: str) -> Step | None:
    """Return a step by its name: one of STEPS, or STEM-KIND of a family."""
    if name in STEPS:
        return Step(*STEPS[name])
    stem, _, kind = name.rpartition("-")
    if not (ROOT / "benchmarks" / f"{stem}.py").exists() or kind not in KINDS:
        return None
    limit, shown, _ = KINDS[kind]
    commands = {
        "bench": [*RUN, f"benchmarks.{stem}", "--check"],
        "counters": [*RUN, f"benchmarks._{stem}_counters"],
        "grade": grade(f"ONLY={stem}", f"OUT={ROOM / name}"),
        "sweep": [*RUN, "benchmarks._sweep", stem],
        "tests": pytest(f"tests/solutions/test_{stem}.py"),
    }
    return Step(LIMITS.get(name, limit), shown, commands[kind])


# Of a family: seconds, lines shown, and what it is.
KINDS = {
    "bench": (240, 60, "beside its peers, held against its floors"),
    "counters": (120, 12, "its kernels under Nsight Compute"),
    "grade": (120, 25, "make grade of its solutions"),
    "sweep": (90, 80, "other settings of its launches"),
    "tests": (150, 12, "all its tests: many choose the GPU without its mark"),
}
# Where a family takes longer, or less.
LIMITS = {
    "as_called-bench": 120,
    "flash_attention_triton-bench": 255,
    "flash_attention_triton-counters": 75,
    "launch-bench": 160,
    "moe-sweep": 60,
    "reduction-bench": 220,
    "softmax-sweep": 165,
    "transformer-bench": 330,
}
# Most of a test's time is compiling, so many processes share them.
SIDE_BY_SIDE = ["-p", "no:benchmark", "--dist", "worksteal", "-n"]
# A test that measures time may fail in company: only what fails alone as well is a
# failure. A cache of its own, since what was measured in company was kept.
IN_COMPANY = f"""
timeout --signal=INT 400 "$@" {shlex.join(SIDE_BY_SIDE)} 12
code=$?
((code == 1)) || exit $code
echo "what failed, alone once more"
KERNELWRIGHT_CACHE="$(mktemp -d)" "$@" --last-failed
"""
PROBE = """
"$0" -m pip list | grep -E "torch|triton|cupy|numpy|^cuda|^pytest|mpi4py"
"$0" -m torch.utils.collect_env | grep -E "version|CUDA|GPU|^CPU"
type nvcc ncu make g++ bwrap compute-sanitizer
nvidia-smi --query-gpu=clocks.sm,clocks.max.sm,power.limit,compute_mode --format=csv
"""
MARKED = pytest("--tb=short", "-m", "gpu")
SPEED = "tests/autograder/speed"
# Another Python, numpy, torch and Triton than where the course is written; -ra names
# what is skipped for want of Jupyter or a browser.
EMULATED = ["env", "KERNELWRIGHT_BACKEND=emulator"]
CPU = [*EMULATED, "CUDA_VISIBLE_DEVICES="]
CPU += pytest("-ra", "--tb=short", *SIDE_BY_SIDE, "14")
# fmt: off
# All benchmarks of a GPU that hold what they measure against a floor, in three shares
# that take about as long.
JUDGED = (
    "flash_attention_triton transformer as_called launch",
    "fusion epilogue moe int4 flash_attention parallel ring_allreduce",
    "softmax reduction layernorm matmul tensor_cores transpose vector_add profiling",
)
STEPS: dict[str, tuple[int, int, list[str]]] = {
    "probe": (25, 60, ["bash", "-c", PROBE, sys.executable]),
    # What chooses the GPU without its mark.
    "unmarked-tests": (85, 12, pytest(
        "-m", "not gpu", "tests/solutions/test_vector_add.py",
        "tests/solutions/test_flash_attention_triton.py")),
    "backward-tests": (100, 12, [*MARKED, *SIDE_BY_SIDE, "12",
        "tests/solutions/test_flash_attention_hopper_backward.py"]),
    # Every test that is marked gpu, less the speed judge's.
    "tests": (520, 60, ["bash", "-c", IN_COMPANY, "in_company",
        *MARKED, f"--ignore={SPEED}", "tests"]),
    "speed-gold": (560, 60, [*MARKED, "-vv", SPEED, "-k", "earns_gold"]),
    "speed-cheaters": (420, 60, [*MARKED, "-vv", SPEED, "-k", "not earns_gold"]),
    **{f"bench{n}": (575, 90, [*RUN, "benchmarks", "--check", *stems.split()])
        for n, stems in enumerate(JUDGED, 1)},
    "grade": (590, 60, grade(f"OUT={ROOM / 'grade'}")),
    # As on a machine without a GPU; the grade by the emulator, beside the GPU.
    "cpu-grade": (560, 60, [*EMULATED, *grade(f"OUT={ROOM / 'cpu-grade'}")]),
    "cpu-autograder": (560, 60, [*CPU, "tests/autograder"]),
    "cpu-tests": (560, 60, [*CPU, "--ignore=tests/autograder", "tests"]),
}
# Groups whose limits come to 580 s at most, in the order in which decisions depend on
# each other: settings are tuned before they are benchmarked.
BATCHES = {f"batch{n}": names.split() for n, names in enumerate((
    "tests",
    "speed-gold",
    "speed-cheaters softmax-tests",
    "probe softmax-sweep unmarked-tests flash_attention_triton-counters "
    "softmax-counters",
    "softmax-bench softmax-grade reduction-bench",
    "cpu-grade",
    "cpu-autograder",
    "cpu-tests",
    "fusion-bench epilogue-bench fusion-sweep",
    "fusion-grade epilogue-grade int4-grade moe-grade",
    "int4-bench moe-bench int4-sweep",
    "as_called-bench launch-bench moe-sweep",
    "transformer-bench transformer-grade",
    "bench1",
    "bench2",
    "bench3",
    "flash_attention_triton-bench backward-tests",
), 1)}
# fmt: on


def listing() -> str:
    """Name the steps and the batches, with their limits."""
    lines = [f"{name:<17}{limit:>4} s" for name, (limit, *_) in STEPS.items()]
    for kind, (limit, _, about) in KINDS.items():
        lines.append(f"{'STEM-' + kind:<17}{limit:>4} s  {about}")
    for name, members in BATCHES.items():
        limit = sum(step.limit for step in map(step_of, members) if step)
        lines.append(f"{name:<17}{limit:>4} s  {' '.join(members)}")
    return "\n".join(lines)


def bounded(step: Step) -> list[str]:
    """Return its command, ended as from a keyboard: so pytest says what failed."""
    until = ["timeout", "--signal=INT", "--kill-after=10", str(step.limit)]
    return until + step.command


def run(name: str, step: Step) -> int:
    """Run a step; show the end of its log, and return its exit code."""
    print(f"== {name}, at most {step.limit} s", flush=True)
    log = ROOM / f"{name}.log"
    with log.open("wb") as file:
        code = subprocess.run(
            bounded(step), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        ).returncode
    print(*log.read_text(errors="replace").splitlines()[-step.shown :], sep="\n")
    return code if code >= 0 else 128 - code  # as a shell has it


def pack(summary: str, began: float) -> None:
    """Leave what there is so far, for a run that is cut short."""
    (OUT / "summary.txt").write_text(summary)
    with tarfile.open(OUT / "gpu.tar.gz", "w:gz") as packed:
        packed.add(OUT / "summary.txt", "summary.txt")
        packed.add(ROOM, "")
        for path in RESULTS.rglob("*.json"):
            if path.stat().st_mtime >= began:
                packed.add(path, path.relative_to(ROOT))


def main(*words: str) -> int:
    """Run steps, one after the other; return how many failed."""
    names = [name for word in words for name in BATCHES.get(word, [word])]
    steps = {name: step for name in names if (step := step_of(name))}
    unknown = [name for name in names if name not in steps]
    if unknown or not names:
        print(__doc__, listing(), *(f"no step or batch {n}" for n in unknown), sep="\n")
        return 2
    if os.environ.get("DRY"):
        for name, step in steps.items():
            print(f"{name}: {shlex.join(bounded(step))}")
        return 0
    # What is measured here is what the book shows.
    os.environ |= {"KERNELWRIGHT_RESULTS": str(RESULTS), "PYTHONUNBUFFERED": "1"}
    os.environ["PYTHONPATH"] = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
    shutil.rmtree(ROOM, ignore_errors=True)
    ROOM.mkdir(parents=True)
    began, failed = time.time(), 0
    summary = f"{'step':<33}{'exit code':<17}seconds\n"
    for name, step in steps.items():
        start = time.monotonic()
        code = run(name, step)
        failed += code != 0
        said = f"{code} (its limit)" if code in (124, 137) else str(code)
        summary += f"{name:<33}{said:<17}{time.monotonic() - start:5.0f} s\n"
        pack(summary, began)
    shutil.rmtree(ROOM)  # it is in gpu.tar.gz; few files come back
    print(f"{summary}logs and results: {OUT / 'gpu.tar.gz'}")
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
