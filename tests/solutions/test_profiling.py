"""solutions.profiling: right on practice GPUs, in step with kw.bench on real ones."""

from __future__ import annotations

import statistics

import pytest
import torch

import kernelwright as kw
from solutions.profiling import (
    Profiler,
    arithmetic_intensity,
    peak_memory,
    time_kernel,
)


def test_the_two_intensities_that_the_chapter_promises() -> None:
    n = 2**26
    assert arithmetic_intensity(n, 2 * n, n, 4) == pytest.approx(1 / 12)
    side = 4096
    square = side * side
    assert arithmetic_intensity(2 * side**3, 2 * square, square, 4) == pytest.approx(
        682.67, abs=0.005
    )
    # The same product in 16-bit elements moves half the bytes.
    assert arithmetic_intensity(2 * side**3, 2 * square, square, 2) == pytest.approx(
        1365.33, abs=0.005
    )


def test_the_timer_finds_the_median_of_cold_launches() -> None:
    gpu = kw.PracticeGPU()
    cold = [2.0, 0.5, 0.4, 0.9, 0.6]
    launch = gpu.kernel("k", cold, 0.1, compile_ms=50.0)
    found = time_kernel(gpu, launch, gpu.flush, 1, 4)
    assert found == pytest.approx(statistics.median(cold[1:]))
    assert launch.launches == 5


def test_regions_nest_and_survive_exceptions() -> None:
    gpu = kw.PracticeGPU()
    gpu.kernel("earlier", 5.0)()
    prof = Profiler(gpu)
    for _ in range(2):
        with prof.record("step"):
            gpu.kernel("a", 1.0)()
            with pytest.raises(ZeroDivisionError), prof.record("inner"):
                gpu.kernel("b", 2.0)()
                raise ZeroDivisionError
    summary = prof.summary()
    assert summary["step"] == (2, pytest.approx(6.0), pytest.approx(2.0))
    assert summary["step/inner"] == (2, pytest.approx(4.0), pytest.approx(4.0))
    assert not prof.open


def test_memory_of_a_call() -> None:
    gpu = kw.PracticeGPU()
    leaked = []

    def fn() -> object:
        leaked.append(gpu.empty(512))
        scratch = gpu.empty(4096)
        result = gpu.empty(1024)
        del scratch
        return result

    assert peak_memory(gpu, fn) == (512 + 4096 + 1024, 512)


@pytest.mark.gpu
def test_the_timer_agrees_with_the_workbench() -> None:
    x = torch.randn(2**24, device="cuda")
    y = torch.empty_like(x)
    waste = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    found = time_kernel(
        torch.cuda, lambda: torch.neg(x, out=y), lambda: waste.fill_(1), 5, 51
    )
    truth = kw.bench(lambda x, y: torch.neg(x, out=y), x, y).median_ms
    print(f"time_kernel {found:.4f} ms, kw.bench {truth:.4f} ms")
    assert found == pytest.approx(truth, rel=0.15)


@pytest.mark.gpu
def test_memory_on_a_real_gpu() -> None:
    x = torch.randn(2**20, device="cuda")
    assert peak_memory(torch.cuda, lambda: torch.relu(x * 2)) == (2 * 2**22, 0)


@pytest.mark.gpu
def test_regions_on_a_real_gpu() -> None:
    a = torch.randn(2048, 2048, device="cuda")
    prof = Profiler(torch.cuda)
    with prof.record("step"):
        for _ in range(5):
            with prof.record("matmul"):
                a @ a
    summary = prof.summary()
    calls, total, own = summary["step"]
    assert calls == 1 and summary["step/matmul"][0] == 5
    assert 0 <= own <= 0.5 * total


def test_the_chapters_figures_of_the_practice_gpu() -> None:
    gpu = kw.PracticeGPU()
    gemm, gelu = gpu.kernel("gemm", 1.5), gpu.kernel("gelu", 0.4)
    prof = Profiler(gpu)
    for _ in range(3):
        with prof.record("step"), prof.record("mlp"):
            gemm()
            with prof.record("gelu"):
                gelu()
            gemm()
    assert f"{prof.summary()['step'][1]:.3f}" == "10.205"
    gpu = kw.PracticeGPU()
    launch = gpu.kernel("add", 0.5, 0.3)
    start = gpu.perf_counter()
    launch()
    assert f"{(gpu.perf_counter() - start) * 1e3:.3f}" == "0.005"
