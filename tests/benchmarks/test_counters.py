"""Which launches the counters are of, and what else stands in stored results."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from benchmarks import _cpu
from benchmarks.profiling_tools import counters as profiling_counters
from tests.benchmarks.paper import Kernel, Placed, gpu_on_paper

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def stored_names(name: str) -> list[str]:
    """Return the names of a stored run's rows."""
    record = json.loads((RESULTS / f"{name}.json").read_text())
    return [row["name"] for row in record["rows"]]


def nothing(*_: object, **__: object) -> None:
    """Launch nothing."""


def matmul(module: ModuleType, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module.family, "matmul", nothing)


def tensor_cores(module: ModuleType, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("solutions.tensor_cores.gemm", nothing)


def flash_attention(module: ModuleType, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("solutions.flash_attention.flash_attention", nothing)


def flash_attention_triton(module: ModuleType, patch: pytest.MonkeyPatch) -> None:
    home = "solutions.flash_attention_triton"
    for name in (
        "forward",
        "hopper.forward_gluon",
        "hopper_64.forward_gluon_64",
        "hopper_backward.backward_gluon",
        "causal.flash_triton_causal",
        "fast.flash_fast",
        "decode.decode_attention",
    ):
        patch.setattr(f"{home}.{name}", nothing)


PREPARED: dict[str, Callable[[ModuleType, pytest.MonkeyPatch], None]] = {
    "matmul": matmul,
    "tensor_cores": tensor_cores,
    "flash_attention": flash_attention,
    "flash_attention_triton": flash_attention_triton,
    "reduction": nothing,
    "layernorm": nothing,
}
# Rows that the stored run lacks, and why.
LACKS = {
    "matmul": {"auto"},  # counted with a plan that it no longer chooses
}


@pytest.mark.parametrize("stem", PREPARED)
def test_the_launches_are_those_of_the_stored_counters(
    stem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"benchmarks._{stem}_counters")
    PREPARED[stem](module, monkeypatch)
    with gpu_on_paper(monkeypatch):
        names = module.launch_all()
    stored = stored_names(f"{stem}-counters-nvidia-h200")
    assert [name for name in names if name not in LACKS.get(stem, set())] == stored


# --- softmax: several launches of some, on shapes that the CPU can bear -------------


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note which kernels chapter 8 launches instead of launching them."""
    from solutions.softmax import fused, kernels, launch, long_rows, side_by_side

    names: list[str] = []

    class Noted(Kernel):
        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, launch: object) -> Noted:
            return self

        def __call__(self, *arguments: object, **options: object) -> None:
            names.append(self.name)

    for module in (fused, kernels, long_rows, side_by_side):
        for name in vars(module):
            if name.endswith("_kernel"):
                monkeypatch.setattr(module, name, Noted(name))
    bench = importlib.import_module("benchmarks.softmax")
    monkeypatch.setattr(bench, "rung", lambda _, stem: Noted(f"softmax_{stem}"))
    # As on a GPU, where the programs of a row can wait for each other.
    monkeypatch.setattr(launch, "_can_meet", lambda x, pieces: pieces <= 64)
    monkeypatch.setattr(
        "benchmarks._softmax_counters.softmax",
        lambda x: launch.forward_into(x[..., None], torch.empty_like(x)[..., None]),
    )
    for name in ("RUNG_SHAPES", "SHAPES"):
        few = [(1, columns) for _, columns in getattr(bench, name)]
        monkeypatch.setattr(bench, name, few)
    return names


def test_each_kernel_of_softmax_has_a_name(
    launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("benchmarks._softmax_counters")
    monkeypatch.setattr(torch.cuda, "synchronize", nothing)
    with Placed("cpu"):
        names = module.launch_all()
    assert len(names) == len(launched) == len(set(names))
    for name, kernel in zip(names, launched, strict=True):
        assert re.search(module.KERNELS, kernel), f"ncu would not count {kernel}"
        assert ("pieces" in name) == (kernel == "piece_kernel")
        assert ("combine" in name) == (kernel == "combine_kernel")
        assert ("fused" in name) == (kernel == "softmax_kernel")
        assert kernel.startswith("softmax_") or "_1x" in name
    assert {"naive_1x8192", "online_1x65536", "softmax_bfloat16_1x262144"} <= set(names)


def test_softmax_is_counted_per_element() -> None:
    module = importlib.import_module("benchmarks._softmax_counters")
    raw = dict.fromkeys(module.COUNTERS, 64.0) | {"duration_us": 5000.0}
    row = module.figures("long_rows_pieces_4x16", raw)
    assert row["label"] == "`long_rows_pieces`, 4 x 16"
    assert (row["n"], row["duration_us"]) == (64, 5.0)
    assert row["loaded_bytes_an_element"] == row["from_l2_bytes_an_element"] == 32
    assert row["from_dram_bytes_an_element"] == 1
    assert row["instructions_an_element"] == 32
    for share in ("dram_share", "l1_share", "exponential_share", "occupancy"):
        assert row[share] == 0.64


# --- runs that are neither of a chapter's rungs nor of their counters ---------------


def test_the_detectives_stored_rows_are_those_of_a_run_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("benchmarks._tensor_cores_detective")
    monkeypatch.setattr(module, "LAUNCHES", 1)
    monkeypatch.setattr(module, "SIDE", 128)
    monkeypatch.setattr("sys.argv", ["detective", str(tmp_path)])
    with gpu_on_paper(monkeypatch), Placed("cpu"):
        assert module.main() == 0
    (path,) = tmp_path.iterdir()
    stored = json.loads((RESULTS / path.name).read_text())
    made = json.loads(path.read_text())
    assert list(made) == list(stored)
    for ours, theirs in zip(made["rows"], stored["rows"], strict=True):
        known = ("name", "label", "tiles")
        assert [ours[key] for key in known] == [theirs[key] for key in known]
        assert list(ours) == list(theirs)


def test_the_two_copies_of_chapter_3_are_the_stored_ones() -> None:
    text = (RESULTS.parent / "profiling_tools" / "two_copies.cu").read_text()
    stored = json.loads((RESULTS / "profiling-counters-nvidia-h200.json").read_text())
    assert [row["name"] for row in stored["rows"]] == re.findall(
        r"__global__ void (\w+)", text
    )
    for row in stored["rows"]:
        raw = {
            "Kernel Name": f"{row['name']}(const float *, float *)",
            "gpu__time_duration.sum": f"{row['duration_us'] * 1e3}",
            "dram__bytes_read.sum": f"{row['read_mb'] * 1e6:,}",
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": (
                f"{row['sectors_per_request'] * 1000}"
            ),
            "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "1,000",
            "dram__throughput.avg.pct_of_peak_sustained_elapsed": (
                f"{row['memory_share'] * 100}"
            ),
            "sm__warps_active.avg.pct_of_peak_sustained_active": (
                f"{row['occupancy'] * 100}"
            ),
        }
        said = ["==PROF== Connected", *(_quoted({"ID": "0"} | raw))]
        (made,) = profiling_counters.rows("\n".join(said))
        for key, value in row.items():
            wanted = pytest.approx(value) if isinstance(value, float) else value
            assert made[key] == wanted, key
        assert made.keys() == row.keys()


def _quoted(row: dict[str, str]) -> list[str]:
    """Return ncu's lines for one launch: the names, the units, the values."""
    lines: tuple[list[str], ...] = (list(row), [""] * len(row), list(row.values()))
    return [",".join(f'"{word}"' for word in line) for line in lines]


def shape_of(record: Any) -> Any:
    """Return a record's keys, at every depth."""
    if isinstance(record, dict):
        return {key: shape_of(value) for key, value in record.items()}
    return None


def test_the_emulators_stored_figures_are_those_of_a_run_today(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from benchmarks import emulator

    monkeypatch.setattr(_cpu, "seconds_of", lambda run, repeats: [1.0] * repeats)
    monkeypatch.setattr(emulator, "numba_simulator", lambda: 2000.0)
    monkeypatch.setattr(emulator, "matmul_of", lambda size: str)
    made = emulator.measured()
    stored = json.loads((RESULTS / "emulator-cpu.json").read_text())
    assert shape_of(made) == shape_of(stored)
    assert made["times_numba_simulator"] == 2000
    slow = emulator.misses(made)
    assert [line.split(":")[0] for line in slow] == list(emulator.LIMITS_S)
    assert not emulator.misses(stored)


def test_the_traces_stored_figures_are_those_of_a_run_today(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from benchmarks import trace

    monkeypatch.setattr(trace, "SIDE", 64)
    monkeypatch.setattr(_cpu, "seconds_of", lambda run, repeats: [11.0] * repeats)
    made = trace.measured()
    stored = json.loads((RESULTS / "trace-cpu.json").read_text())
    assert shape_of(made) == shape_of(stored)
    assert [line.split(":")[0] for line in trace.misses(made)] == list(trace.LIMITS_S)
    assert not trace.misses(stored)


@pytest.mark.parametrize(("words", "code"), [((), 0), (("--check",), 1)])
def test_a_figure_of_the_cpu_is_judged_where_it_is_asked_for(
    words: tuple[str, ...],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["x", *words, "--out", str(tmp_path)])

    def misses(record: Any) -> list[str]:
        return [f"slow: {record['slow']} s, limit 1 s"]

    assert _cpu.run("x-cpu", "About.", lambda: {"slow": 2}, misses) == code
    assert json.loads((tmp_path / "x-cpu.json").read_text()) == {"slow": 2}
    assert ("limit 1 s" in capsys.readouterr().out) == bool(code)


def test_a_call_is_timed_as_often_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter((0.0, 1.0, 10.0, 12.0))
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    assert _cpu.seconds_of(lambda: None, 2) == [1.0, 2.0]
