"""``bench`` on a CPU: it measures what it says, and says what it measured."""

from __future__ import annotations

import gc
import re
import time

import pytest
import torch

import kernelwright as kw
from kernelwright.measure import Timing, bench, copy_bandwidth, matmul_rate
from kernelwright.measure.bench import plan
from kernelwright.measure.clocks import MonotonicClock

MANY = 5_000_000


def test_it_measures_a_known_time():
    timing = bench(time.sleep, 0.002, samples=9)
    assert timing.n == 9
    # Who shares the cores may make some calls long, hardly all of them.
    assert 2.0 <= timing.low_ms < 4.0
    assert timing.low_ms <= timing.median_ms <= timing.high_ms
    assert timing.clock == "monotonic clock"


def test_calls_rotate_through_the_copies():
    seen = set()

    def note(x: torch.Tensor) -> None:
        seen.add(x.data_ptr())

    timing = bench(note, torch.zeros(MANY), seconds=0.02)
    assert timing.copies > 1
    assert len(seen) == timing.copies
    assert timing.footprint == timing.copies * MANY * 4


def test_captured_tensors_are_called_out():
    x = torch.zeros(10)
    timing = bench(lambda: x + 1, samples=7, seconds=0.01)
    assert "no tensors were passed" in repr(timing)
    assert not timing.cold


def test_short_calls_are_timed_in_groups():
    timing = bench(abs, -1, samples=7, seconds=0.01)
    assert timing.calls > 1
    assert timing.median_ms < 0.01


def test_rates_follow_from_bytes_and_operations():
    timing = Timing.of(
        [2.0, 2.0, 2.0], clock="c", device="d", bytes_moved=10**9, flops=4 * 10**12
    )
    assert timing.gbps == pytest.approx(500.0)
    assert timing.tflops == pytest.approx(2000.0)
    assert Timing.of([1.0], clock="c", device="d").gbps is None


def test_the_text_has_unit_interval_number_and_rate():
    samples = [0.1832] * 40 + [0.19]
    timing = Timing.of(
        samples, clock="device events", device="d", bytes_moved=805306368
    )
    assert re.fullmatch(
        r"183\.2 µs \(9\d% interval 183\.2 to 183\.2 µs, n = 41\), 4,396 GB/s",
        repr(timing),
    )


def test_a_cpu_time_says_that_it_is_one():
    timing = Timing.of([1.0], clock="monotonic clock", device="cpu")
    assert "on the CPU" in repr(timing)


@pytest.mark.parametrize(
    ("each_ms", "grouped", "wanted"),
    [
        (1.0, True, (1, 300)),  # 0.3 s of 1 ms calls
        (0.01, True, (5, 1000)),  # grouped to 50 us, and no more than 1,000
        (0.01, False, (1, 1000)),  # scrubbed: one call a sample
        (5000.0, True, (1, 7)),  # slow: as few as an interval needs
    ],
)
def test_plan(each_ms, grouped, wanted):
    assert plan(each_ms, 0.3, None, grouped=grouped) == wanted


def test_the_collector_is_off_while_measuring_and_on_again_after():
    states = []
    bench(lambda: states.append(gc.isenabled()), samples=7, seconds=0.01)
    assert not any(states)
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        bench(lambda: 1 / 0)
    assert gc.isenabled()


@pytest.mark.parametrize("wrong", [{"samples": 0}, {"seconds": 0.0}])
def test_nonsense_is_refused(wrong):
    with pytest.raises(ValueError, match="positive"):
        bench(abs, 1, **wrong)


def test_a_clock_times_each_group_by_itself():
    nap, nothing = (lambda: time.sleep(0.003)), (lambda: None)
    # Others on this machine may come in between, once or twice.
    pairs = [MonotonicClock().sample([[nap, nap], [nothing]]) for _ in range(5)]
    assert all(long >= 6.0 for long, _ in pairs)
    assert min(short for _, short in pairs) < 1.0


@pytest.mark.slow
def test_ceilings_of_this_cpu_are_plausible():
    copy = copy_bandwidth("cpu", seconds=0.05)
    matmul = matmul_rate("cpu", size=256, seconds=0.05)
    # Slower than any machine of today would be a bug in the counting.
    assert copy.gbps is not None and 0.5 < copy.gbps < 2000
    assert matmul.tflops is not None and 0.001 < matmul.tflops < 100
    assert copy.bytes_moved == 2 * copy.footprint // (2 * copy.copies)


def test_what_only_imitates_a_gpu_is_run_once_and_not_timed():
    kernel = kw.cuda.compile(
        "__global__ void more(float* x) { x[threadIdx.x] += 1.0f; }",
        backend="emulator",
    )["more"]
    x = torch.zeros(8)
    timing = bench(kernel[1, 8], x, bytes_moved=64, label="more")
    assert repr(timing) == "more: not measured: the emulator has no GPU's clock"
    assert x.tolist() == [1.0] * 8
    assert timing.n == 0


@pytest.mark.skipif(kw.cuda.backend() == "gpu", reason="Triton compiles here")
def test_nor_is_what_tritons_interpreter_runs():
    triton = pytest.importorskip("triton")

    @triton.jit
    def copy(x_ptr, out_ptr):
        rows = triton.language.arange(0, 4)
        triton.language.store(out_ptr + rows, triton.language.load(x_ptr + rows))

    def copied(x):
        out = torch.empty_like(x)
        copy[(1,)](x, out)
        return out

    assert "not measured" in repr(bench(copied, torch.ones(4)))
