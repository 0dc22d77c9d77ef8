"""Two ways to time calls: events on the device, a monotonic clock on the CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

Call = Callable[[], object]


class Clock(Protocol):
    """Takes samples of calls; each sample is the time of one group of them."""

    name: str

    def settle(self) -> None:
        """Wait until everything that was started has finished."""

    def sample(self, groups: Sequence[Sequence[Call]]) -> list[float]:
        """Run the groups in order and return the ms that each took."""


class MonotonicClock:
    """Times what runs on the CPU and is over when it returns."""

    name = "monotonic clock"

    def settle(self) -> None:
        """Do nothing: a call on the CPU is over when it returns."""

    def sample(self, groups: Sequence[Sequence[Call]]) -> list[float]:
        """Run the groups in order and return the ms that each took."""
        times = []
        for group in groups:
            start = time.perf_counter_ns()
            for call in group:
                call()
            times.append((time.perf_counter_ns() - start) / 1e6)
        return times


@dataclass
class DeviceClock:
    """Times what runs on a GPU by events in its stream.

    The device is held back by a spinning kernel until the CPU has queued a whole
    batch; from then on it never waits for the CPU, and the time between two events
    is the device's own. ``starved`` says that this did not succeed: the calls wait
    for the device themselves, or the CPU is far slower than expected.

    Args:
        device: the GPU.
        scrub: called before each group to push its inputs out of the cache.
    """

    device: torch.device
    scrub: Callable[[], None] | None = None
    starved: bool = False
    name: str = "device events"
    _queue_s: float = 2e-3

    def settle(self) -> None:
        """Wait until the device is idle."""
        torch.cuda.synchronize(self.device)

    def sample(self, groups: Sequence[Sequence[Call]]) -> list[float]:
        """Run the groups in order and return the ms that each took on the device."""
        with torch.cuda.device(self.device):
            for _ in range(3):
                times, full = self._batch(groups)
                if full:
                    self.starved = False
                    return times
                self._queue_s = min(4 * self._queue_s, 0.1)
        self.starved = True
        return times

    def _batch(self, groups: Sequence[Sequence[Call]]) -> tuple[list[float], bool]:
        """Queue every group behind a delay; say whether the delay outlasted that."""
        pairs = [(_event(), _event()) for _ in groups]
        self.settle()
        # Cycles at 2 GHz: a slower clock only makes the delay longer.
        torch.cuda._sleep(int(self._queue_s * 2e9))
        released = _event()
        released.record()
        for group, (start, stop) in zip(groups, pairs, strict=True):
            if self.scrub is not None:
                self.scrub()
            start.record()
            for call in group:
                call()
            stop.record()
        full = not released.query()
        self.settle()
        return [start.elapsed_time(stop) for start, stop in pairs], full


def _event() -> torch.cuda.Event:
    """Make an event that remembers when it was reached."""
    return torch.cuda.Event(enable_timing=True)
