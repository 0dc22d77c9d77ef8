"""The practice GPU: a queue, two clocks, a cache and an allocator, as torch.cuda's."""

from __future__ import annotations

import pytest
import torch

from kernelwright.measure.practice import PracticeGPU
from kernelwright.measure.timer_view import timer_view


def test_a_launch_returns_before_the_work_is_done() -> None:
    gpu = PracticeGPU(launch_ms=0.004, event_ms=0.0)
    gpu.kernel("k", 3.0)()
    assert gpu.cpu_ms == pytest.approx(0.004)
    gpu.synchronize()
    assert gpu.cpu_ms == pytest.approx(3.004 + gpu.wake_ms)


def test_the_first_launch_compiles_and_the_second_does_not() -> None:
    gpu = PracticeGPU()
    launch = gpu.kernel("k", 1.0, compile_ms=100.0)
    launch()
    assert gpu.cpu_ms > 100
    before = gpu.cpu_ms
    launch()
    assert gpu.cpu_ms - before == pytest.approx(gpu.launch_ms)


def test_a_cache_holds_what_was_read_until_it_is_flushed() -> None:
    gpu = PracticeGPU()
    first = gpu.kernel("first", 1.0, 0.5, reads="x")
    other = gpu.kernel("other", 1.0, 0.5, reads="x")
    took = []
    for launch in (first, other, gpu.flush, first):
        launch()
        took.append(gpu.log[-1].stop_ms - gpu.log[-1].start_ms)
    assert took == pytest.approx([1.0, 0.5, gpu.flush_ms, 1.0])


def test_events_tell_the_gpus_time_and_only_after_waiting() -> None:
    gpu = PracticeGPU()
    gpu.flush()
    start, stop = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
    with pytest.raises(RuntimeError, match="never recorded"):
        start.elapsed_time(stop)
    start.record()
    gpu.kernel("k", 0.7)()
    stop.record()
    assert not stop.query()
    with pytest.raises(RuntimeError, match="synchronize"):
        start.elapsed_time(stop)
    stop.synchronize()
    assert start.elapsed_time(stop) == pytest.approx(0.7)
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        gpu.Event().elapsed_time(stop)


def test_memory_is_free_when_nothing_refers_to_it() -> None:
    gpu = PracticeGPU()
    held = gpu.empty(1000)
    assert gpu.memory_allocated() == 1024
    gpu.empty(5000)
    assert gpu.memory_allocated() == 1024
    assert gpu.max_memory_allocated() == 1024 + 5120
    gpu.reset_peak_memory_stats()
    assert gpu.max_memory_allocated() == held.nbytes + 24


def test_its_names_are_torchs() -> None:
    for name in (
        "Event",
        "synchronize",
        "memory_allocated",
        "max_memory_allocated",
        "reset_peak_memory_stats",
    ):
        assert hasattr(torch.cuda, name) and hasattr(PracticeGPU, name)
    for name in ("record", "query", "synchronize", "elapsed_time"):
        assert hasattr(torch.cuda.Event, name)
        assert hasattr(PracticeGPU().Event(), name)


def test_the_view_draws_what_happened_and_says_what_is_missing() -> None:
    def by_clock(gpu: PracticeGPU, launch: object) -> float:
        start = gpu.perf_counter()
        launch()  # type: ignore[operator]
        return (gpu.perf_counter() - start) * 1e3

    def unwritten(gpu: PracticeGPU, launch: object) -> float:
        raise NotImplementedError

    view = timer_view(
        {"clock": by_clock, "yours": unwritten, "none": lambda g, k: None}
    )
    words = str(view)
    assert "0.900 ms, the kernel takes 0.500 ms" in words
    assert words.count("nothing is written here yet") == 2
    page = view._repr_html_()
    assert page.count("<svg") == 3 and "kw-stretch" in view.svg(0)
    assert "http://www.w3.org/2000/svg" in page and "https://" not in page
