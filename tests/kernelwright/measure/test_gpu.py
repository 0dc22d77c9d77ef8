"""Measuring on a real GPU: its own time, from memory, and no more than it can do."""

from __future__ import annotations

import time

import pytest
import torch

import kernelwright as kw
from kernelwright.measure import bench, copy_bandwidth, matmul_rate

pytestmark = pytest.mark.gpu


def spin(seconds: float) -> None:
    """Keep the CPU busy, as a slow launcher does."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_device_names_this_gpu_and_its_ceilings():
    here = kw.device()
    print(f"\n{here}")
    assert here.is_gpu and here.family is not None
    assert here.name == torch.cuda.get_device_name()
    assert here.driver is not None
    if here.sheet is not None:
        assert 0.6 < here.copy_gbps / here.sheet.memory_gbps < 1.0
        if here.sheet.half_tflops is not None:
            assert 0.3 < here.ceilings.matmul_tflops / here.sheet.half_tflops < 1.0


def test_bench_agrees_with_a_long_run_by_the_clock():
    source = torch.randn(2**26, device="cuda")
    target = torch.empty_like(source)
    timing = bench(target.copy_, source, bytes_moved=2**29)
    print(f"\n{timing}, {timing.copies} copies")
    assert timing.clock == "device events" and timing.cold and not timing.notes
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(200):
        target.copy_(source)
    torch.cuda.synchronize()
    by_clock_ms = (time.perf_counter() - start) / 200 * 1e3
    assert timing.median_ms == pytest.approx(by_clock_ms, rel=0.05)


def test_the_same_measurement_twice_is_the_same():
    first, second = (copy_bandwidth(seconds=0.2) for _ in range(2))
    print(f"\n{first}\n{second}")
    assert first.median_ms == pytest.approx(second.median_ms, rel=0.02)


def test_launch_overhead_is_not_measured():
    x = torch.zeros(1024, device="cuda")

    def slowly_launched(x: torch.Tensor) -> None:
        spin(100e-6)
        x.add_(1.0)

    timing = bench(slowly_launched, x)
    print(f"\n{timing}")
    # The kernel takes about 2 us, its launch 100.
    assert timing.median_ms < 0.020
    assert not timing.notes


def test_what_waits_for_the_device_says_so():
    x = torch.zeros(1024, device="cuda")
    timing = bench(lambda x: x.sum().item(), x, samples=9)
    print(f"\n{timing}")
    assert any("launch overhead is included" in note for note in timing.notes)


def test_inputs_come_from_memory_and_not_from_the_cache():
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    x = torch.randn(l2 // 16, device="cuda")  # a quarter of the L2
    out = torch.empty((), device="cuda")

    def read(x: torch.Tensor) -> None:
        torch.sum(x, dim=0, out=out)

    cold = bench(read, x, bytes_moved=x.nbytes)
    warm = bench(lambda: [read(x) for _ in range(20)], bytes_moved=20 * x.nbytes)
    print(f"\ncold {cold}\nwarm {warm}")
    assert cold.cold and cold.footprint > 4 * l2
    assert warm.gbps is not None and cold.gbps is not None
    assert warm.gbps > 1.1 * cold.gbps


def test_small_inputs_are_scrubbed_from_the_cache_instead():
    x = torch.randn(1024, device="cuda")
    timing = bench(torch.neg, x)
    print(f"\n{timing}, {timing.copies} copies")
    assert timing.cold


def test_matmul_rate_is_below_the_peak():
    timing = matmul_rate(size=4096)
    print(f"\n{timing}")
    sheet = kw.device().sheet
    if sheet is not None and sheet.half_tflops is not None:
        assert timing.tflops is not None
        assert 0.3 * sheet.half_tflops < timing.tflops < sheet.half_tflops
