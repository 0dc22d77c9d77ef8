"""Profiler, peak_memory and roofline: right numbers on the CPU, and on a GPU."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch

import kernelwright as kw
from kernelwright.measure.memory import AllocationLog, allocations
from kernelwright.measure.timing import Timing

MIB = 2**20
PLACES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def test_regions_nest_repeat_and_raise() -> None:
    prof = kw.Profiler("cpu")
    for _ in range(3):
        with prof.record("step"):
            with prof.record("inner"):
                time.sleep(0.002)
            with pytest.raises(KeyError), prof.record("raises"):
                raise KeyError
    summary = prof.summary()
    assert [row.path for row in summary.rows] == ["step", "step/inner", "step/raises"]
    step, inner = summary["step"], summary["step/inner"]
    assert step.calls == inner.calls == summary["step/raises"].calls == 3
    assert step.total_ms >= inner.total_ms >= 6.0
    parts = sum(row.own_ms for row in summary.rows)
    assert parts == pytest.approx(summary.total_ms)
    with pytest.raises(KeyError, match="no region 'inner'; there are: step, "):
        summary["inner"]
    with pytest.raises(ValueError, match="without a slash"), prof.record("a/b"):
        pass


def test_the_table_reads_in_a_terminal_and_in_a_notebook() -> None:
    with kw.Profiler("cpu") as prof, prof.record("<outer>"), prof.record("inner"):
        pass
    summary = prof.summary()
    assert "\n  inner" in str(summary) and "100%" not in str(summary).splitlines()[0]
    page = summary._repr_html_()
    assert "&lt;outer&gt;" in page and "<outer>" not in page
    assert kw.Profiler("cpu").summary().rows == []


@pytest.mark.parametrize("place", PLACES)
def test_memory_peaks_by_region(place: str) -> None:
    x = torch.ones(MIB // 4, device=place)  # 1 MiB
    prof = kw.Profiler(place, memory=True)
    with prof.record("outer"):
        with prof.record("two"):
            y = x + 1
            z = y + 1
        with prof.record("none"):
            del z
        with prof.record("one"):
            (y * 2).sum()
    summary = prof.summary()
    found = {row.name: row.peak_bytes / MIB for row in summary.rows}
    assert found["two"] == pytest.approx(2.0, abs=0.01)
    assert found["none"] == 0
    assert found["one"] == pytest.approx(1.0, abs=0.01)
    assert found["outer"] == pytest.approx(2.0, abs=0.01)
    assert "MiB" in str(summary)


def test_the_trace_opens_in_chrome(tmp_path: Path) -> None:
    prof = kw.Profiler("cpu")
    with prof.record("outer"), prof.record("inner"):
        time.sleep(0.001)
    events = json.loads(prof.chrome_trace(tmp_path / "t.json").read_text())
    outer, inner = (e for e in events["traceEvents"] if e["ph"] == "X")
    assert (outer["name"], inner["name"]) == ("outer", "inner")
    assert outer["ts"] <= inner["ts"] and inner["dur"] >= 1000
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]


@pytest.mark.parametrize("place", PLACES)
def test_peak_memory_of_known_calls(place: str) -> None:
    x = torch.ones(MIB // 4, device=place)
    two = kw.peak_memory(lambda x: torch.relu(x + 1), x)
    assert (two.peak_bytes, two.result_bytes, two.kept_bytes) == (2 * MIB, MIB, 0)
    one = kw.peak_memory(lambda x: torch.relu_(x + 1), x)
    # A scalar operand is a tensor too, of a few bytes.
    assert one.peak_bytes == pytest.approx(MIB, abs=1024)
    kept: list[torch.Tensor] = []
    leak = kw.peak_memory(lambda x: kept.append(x + 1), x)
    assert leak.peak_bytes == pytest.approx(MIB, abs=1024)
    assert (leak.result_bytes, leak.kept_bytes) == (0, MIB)
    assert kw.peak_memory(lambda: None, device=place).peak_bytes == 0


def test_temporaries_inside_an_operation_are_seen() -> None:
    # A sorted copy and its indices are made inside one call from Python.
    x = torch.randn(MIB // 4)
    use = kw.peak_memory(torch.sort, x)
    assert use.result_bytes == MIB + 2 * MIB  # floats, and 64-bit indices
    assert use.peak_bytes >= use.result_bytes
    assert "torch.profiler" in str(use)


def test_the_log_of_allocations() -> None:
    log = AllocationLog([(1, 10), (2, 20), (3, -10), (4, 5)], {})
    assert log.level(2) == 30 and log.level() == 25
    assert log.peak(0, 9) == 30 and log.peak(2, 9) == 0 and log.peak(1, 2) == 20
    with allocations() as found:
        torch.ones(MIB // 4)
    assert [size for _, size in found.changes] == [MIB, -MIB]


def test_roofline_numbers() -> None:
    n, side = 2**26, 4096
    roof = kw.roofline(
        kw.Point("vector add", n, 12 * n, 0.2, roof="fp32"),
        kw.Point("matmul", 2 * side**3, 12 * side**2, roof="fp32"),
        gbps=4000,
        roofs={"fp32": 50.0, "bf16": 700.0},
        name="made up",
    )
    add, matmul = roof.points
    assert add.intensity == pytest.approx(1 / 12)
    assert matmul.intensity == pytest.approx(682.67, abs=0.005)
    assert roof.ridge("fp32") == 12.5 and roof.ridge() == 175.0
    assert (roof.limit(add), roof.limit(matmul)) == ("memory", "arithmetic")
    assert roof.attainable(1.0) == 4.0 and roof.attainable(1e4) == 700.0
    assert roof.bound_ms(add.flops, add.bytes_moved) == pytest.approx(12 * n / 4e9)
    assert roof.share(add) == pytest.approx(12 * n / 4e9 / 0.2)
    assert roof.share(matmul) is None and "not measured" in str(roof)
    page = roof._repr_html_()
    assert page.count("<circle") == 3 and "FLOP/byte" in page and "https://" not in page


def test_roofline_refuses_what_it_cannot_place() -> None:
    timing = Timing.of([1.0], clock="monotonic clock", device="cpu", label="mine")
    given = {"gbps": 100.0, "roofs": {"fp32": 1.0}}
    with pytest.raises(ValueError, match="pass bytes_moved= and flops="):
        kw.roofline(timing, **given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no place for zero"):
        kw.roofline(kw.Point("copy", 0, 8), **given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positive ceilings"):
        kw.roofline(gbps=-1.0, roofs={"fp32": 1.0})
    with pytest.raises(ValueError, match="no roof"):
        kw.roofline(kw.Point("k", 1, 1, roof="fp64"), **given)  # type: ignore[arg-type]


def test_the_roofline_of_this_machine_is_measured() -> None:
    x = torch.randn(2**20)
    timing = kw.bench(
        torch.neg, x, flops=2**20, bytes_moved=2**23, samples=7, label="negate"
    )
    roof = kw.roofline(timing)
    assert roof.gbps == kw.device().copy_gbps
    share = roof.share(roof.points[0])
    assert share is not None and share > 0 and "negate" in str(roof)


@pytest.mark.gpu
def test_regions_on_a_gpu_are_device_time() -> None:
    a = torch.randn(4096, 4096, device="cuda")
    truth = kw.bench(torch.matmul, a, a).median_ms
    prof = kw.Profiler()
    torch.cuda._sleep(20_000_000)
    start = time.perf_counter()
    with prof.record("step"):
        for _ in range(10):
            with prof.record("matmul"):
                a @ a
    queued_ms = (time.perf_counter() - start) * 1e3
    row = prof.summary()["step/matmul"]
    print(f"in regions {row.total_ms / 10:.4f} ms, bench {truth:.4f}, CPU {queued_ms}")
    assert row.total_ms / 10 == pytest.approx(truth, rel=0.1)
    assert queued_ms < row.total_ms  # the CPU was never held up
