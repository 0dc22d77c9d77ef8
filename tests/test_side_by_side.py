"""Tests of the GPU run file by file: what is chosen, and what fails once or twice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import side_by_side


def test_every_file_with_a_gpu_test_is_chosen_but_the_speed_judges() -> None:
    files = side_by_side.files_in_order()
    assert "tests/kernelwright/cuda/test_both_backends.py" in files
    assert not [file for file in files if file.startswith(side_by_side.ALONE)]
    assert "flash_attention" in files[0]
    asked = [
        str(path.relative_to(side_by_side.ROOT))
        for path in (side_by_side.ROOT / "tests").rglob("test_*.py")
        if "mark.gpu" in path.read_text()
    ]
    assert {f for f in asked if not f.startswith(side_by_side.ALONE)} <= set(files)


FILES = {
    "sound": "def test_a(): pass\n",
    "broken": "def test_b(): assert 0\n",
    "shy": (
        "import pathlib\n"
        "def test_c():\n"
        "    seen = pathlib.Path(__file__).with_suffix('.seen')\n"
        "    before = seen.exists()\n"
        "    seen.touch()\n"
        "    assert before\n"
    ),
    "endless": "import time\ndef test_d(): time.sleep(60)\n",
}


@pytest.mark.parametrize(
    ("names", "code", "says"),
    [
        (("sound", "shy"), 0, "alone once more: 1"),
        (("sound", "broken"), 1, "1 failed"),
        (("sound", "endless"), 1, "NOT TO THE END: test_endless.py"),
    ],
    ids=["fails in company alone", "fails alone", "takes too long"],
)
def test_what_fails_is_tried_alone(
    names: tuple[str, ...],
    code: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mark = "import pytest\npytestmark = pytest.mark.gpu\n"
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu\n")
    for name in names:
        (tmp_path / f"test_{name}.py").write_text(mark + FILES[name])
    monkeypatch.setattr(side_by_side, "ROOT", tmp_path)
    monkeypatch.setattr(
        side_by_side, "files_in_order", lambda: [f"test_{name}.py" for name in names]
    )
    seconds = "12" if "endless" in names else "50"
    monkeypatch.setattr(sys, "argv", ["side_by_side", "--seconds", seconds])
    assert side_by_side.main() == code
    assert says in capsys.readouterr().out
