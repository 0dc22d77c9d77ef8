"""The GPU's clock and power while something runs, as the driver tells them.

Nothing is set: NVML is asked, in a thread, every few milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

_SM, _MEMORY = 1, 2
_EVERY_S, _NEAR_S = 0.003, 0.1


@dataclass(frozen=True)
class Sample:
    """What the driver said at one moment.

    Args:
        at: monotonic seconds.
        sm_mhz, memory_mhz: the clocks.
        watts: the power drawn, as NVML averages it.
    """

    at: float
    sm_mhz: float
    memory_mhz: float
    watts: float


@dataclass
class Clocks:
    """Reads clocks until it is stopped; without NVML it reads nothing."""

    samples: list[Sample] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def running(self) -> Iterator[Clocks]:
        """Read in a thread of its own while the block runs."""
        thread = threading.Thread(target=self._read, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join(timeout=2)

    def median(self, span: tuple[float, float], name: str) -> float | None:
        """Return the median of a figure between two moments, or the nearest one's.

        Args:
            span: monotonic begin and end.
            name: of the figure in a ``Sample``.
        """
        begin, end = span
        inside = [s for s in self.samples if begin <= s.at <= end]
        if not inside:
            middle = (begin + end) / 2
            near = sorted(self.samples, key=lambda s: abs(s.at - middle))[:1]
            inside = [s for s in near if abs(s.at - middle) < _NEAR_S]
        values = [float(getattr(one, name)) for one in inside]
        return statistics.median(values) if values else None

    def _read(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
            if nvml.nvmlInit_v2() != 0:
                return
            try:
                self._ask(nvml)
            finally:
                nvml.nvmlShutdown()

    def _ask(self, nvml: ctypes.CDLL) -> None:
        handle = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) != 0:
            return
        sm, memory, milliwatts = (ctypes.c_uint() for _ in range(3))
        while not self._stop.wait(_EVERY_S):
            nvml.nvmlDeviceGetClockInfo(handle, _SM, ctypes.byref(sm))
            nvml.nvmlDeviceGetClockInfo(handle, _MEMORY, ctypes.byref(memory))
            nvml.nvmlDeviceGetPowerUsage(handle, ctypes.byref(milliwatts))
            figures = (sm.value, memory.value, milliwatts.value / 1e3)
            self.samples.append(Sample(time.monotonic(), *figures))
