"""``pytest autograder --submission …``: the engine that a developer sees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_exercises import write_notebook

from autograder.exercises import all_exercises
from autograder.regions import cell_source
from autograder.supervisor.sandbox import PACKAGES


def engine(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the engine as a developer would."""
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "autograder",
        "-q",
        "-p",
        "no:cacheprovider",
        # Where it is installed it minds that other tests run beside.
        "-p",
        "no:benchmark",
    ]
    return subprocess.run(
        [*argv, *arguments], cwd=PACKAGES, capture_output=True, text=True, timeout=120
    )


def test_an_exercise_is_a_test(tmp_path: Path) -> None:
    if not (PACKAGES / "pyproject.toml").exists():
        pytest.skip("not a checkout")
    solved = cell_source(all_exercises()["add_one"], solved=True)
    stub = cell_source(all_exercises()["vector_add"], solved=False)
    write_notebook(tmp_path / "01_vector_add.ipynb", [solved, stub])
    done = engine(
        "--submission", str(tmp_path), "--seed", "3", "--only", "add_one",
        "--only", "saxpy_grid_stride",
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "has no cell for exercise saxpy_grid_stride" in done.stdout
    assert "seed 3" in done.stdout


def test_a_wrong_name_is_a_usage_error(tmp_path: Path) -> None:
    done = engine("--submission", str(tmp_path / "gone"))
    assert done.returncode != 0 and "no such folder or notebook" in done.stdout
