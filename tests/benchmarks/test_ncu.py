"""What is stored of ncu's counts; a script stands in for ncu, which needs a GPU."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import pytest

from benchmarks._ncu import count

SAID = """launched: first second
==PROF== a line that is no table
"ID","Kernel Name","time","share","absent"
"","","ns","%",""
"0","k","2,000","50","n/a"
"1","k","3000.5","25",""
==PROF== done
"""


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program in ncu's place that notes how it was called."""
    (tmp_path / "said").write_text(SAID)
    program = tmp_path / "ncu"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n'
        f'[ "$1" = --version ] && echo "Version 2025.1" || cat {tmp_path}/said\n'
    )
    program.chmod(0o755)
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho NVIDIA Test\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("sys.argv", ["counters", str(tmp_path / "out")])
    return tmp_path


def counted(tmp_path: Path) -> int:
    counters = {"ns": "time", "share": "share", "other": "absent"}
    return count(
        "sums", counters, "^k$", list, lambda name, v: {"name": name, **v}, {"n": 3}
    )


def test_a_row_for_each_launch_is_stored(ncu: Path) -> None:
    assert counted(ncu) == 0
    record = json.loads((ncu / "out" / "sums-counters-nvidia-test.json").read_text())
    assert record["rows"] == [
        {"name": "first", "ns": 2000.0, "share": 50.0},
        {"name": "second", "ns": 3000.5, "share": 25.0},
    ]
    assert (record["device"], record["n"]) == ("NVIDIA Test", 3)
    assert record["versions"] == {"ncu": "2025.1"}
    asked = (ncu / "asked").read_text()
    assert "-k regex:^k$ --metrics time,share,absent" in asked
    assert "-m benchmarks._sums_counters --launch" in asked


def test_nothing_is_stored_where_ncu_fails(
    ncu: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (ncu / "said").write_text("ERR_NVGPUCTRPERM")
    assert counted(ncu) == 1
    assert "ERR_NVGPUCTRPERM" in capsys.readouterr().out
    assert not (ncu / "out").exists()


@pytest.mark.parametrize(
    "stem", ["layernorm", "matmul", "reduction", "tensor_cores", "flash_attention"]
)
def test_a_stored_row_comes_of_its_own_counters(stem: str) -> None:
    """Undo a stored row's units; its figures must come out again."""
    module = importlib.import_module(f"benchmarks._{stem}_counters")
    root = Path(__file__).parents[2] / "benchmarks" / "results"
    stored = json.loads((root / f"{stem}-counters-nvidia-h200.json").read_text())
    shares = getattr(module, "_SHARES", None)
    make = getattr(module, "row", module.figures)
    for row in stored["rows"]:
        raw = {name: row[name] for name in module.COUNTERS if name in row}
        for name in raw:
            if name in (shares or ()) or (shares is None and name.endswith("_share")):
                raw[name] *= 100
        for name, ns in (("duration_us", 1e3), ("duration_ms", 1e6)):
            if name in raw:
                raw[name] *= ns
        made = make(row["name"], raw)
        texts = {k: v for k, v in row.items() if isinstance(v, str)}
        assert {k: made[k] for k in texts} == texts
        numbers = {k: v for k, v in row.items() if k not in texts}
        assert {k: made[k] for k in numbers} == pytest.approx(numbers)
        assert made.keys() == row.keys()
