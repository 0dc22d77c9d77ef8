"""``Profiler``: where the time and the memory of a program go, region by region."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from kernelwright.measure.memory import REGION, AllocationLog, allocations
from kernelwright.measure.summary import Row, Summary


@dataclass
class _Region:
    """One run of a region, from its entry to its exit."""

    path: str
    depth: int
    host_start_ns: int = 0
    host_stop_ns: int = 0
    start: torch.cuda.Event | None = None
    stop: torch.cuda.Event | None = None
    base_bytes: int = 0
    peak_bytes: int = 0
    start_ms: float = 0.0
    ms: float = 0.0


class Profiler:
    """Times named regions of a program, nested as deep as you like.

    On a GPU each region is marked by two events in the stream, which the device passes
    when it comes to them: the program is not held up, and all reading waits for
    ``summary``. Elsewhere a monotonic clock is read.

    >>> prof = kw.Profiler()
    >>> with prof.record("step"), prof.record("forward"):
    ...     y = model(x)
    >>> prof.summary()

    Args:
        device: where the work runs; by default the GPU if this process uses one.
        memory: also find each region's peak of torch's memory, beyond what was in use
            at its beginning. The default on a GPU, where it makes a region cost the
            CPU some 60 µs instead of 20 (benchmarks/profiling.py, H200); on a CPU
            torch's own profiler has to watch, which slows small operations.
    """

    def __init__(
        self, device: torch.device | str | None = None, *, memory: bool | None = None
    ) -> None:
        in_use = torch.cuda.is_initialized()
        self.device = torch.device(device or ("cuda" if in_use else "cpu"))
        self.on_gpu = self.device.type == "cuda"
        self.memory = self.on_gpu if memory is None else memory
        self._regions: list[_Region] = []
        self._open: list[_Region] = []
        self._origin: torch.cuda.Event | None = None

    def __enter__(self) -> Profiler:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    @contextmanager
    def record(self, name: str) -> Iterator[None]:
        """Time what runs inside the ``with`` block, as a part of the open region.

        Args:
            name: of the region; runs of one name under one parent are summed up.

        Raises:
            ValueError: the name is empty or holds a slash.
        """
        if not name or "/" in name:
            raise ValueError(
                f"a region is called {name!r}: wanted some text without a slash, which "
                "stands between a region and its parent"
            )
        parent = self._open[-1].path + "/" if self._open else ""
        region = _Region(parent + name, len(self._open))
        with ExitStack() as watching:
            if self.memory and not self.on_gpu:
                self._watch_cpu(watching, region)
            self._regions.append(region)
            self._open.append(region)
            self._begin(region)
            try:
                yield
            finally:
                self._end(region)
                self._open.pop()

    def summary(self) -> Summary:
        """Sum up all finished regions; waits for the device first.

        Returns:
            A table: calls, total and own ms, share, peak memory. A region's own time
            is what its inner regions leave.
        """
        regions = self._resolved()
        rows: dict[str, Row] = {}
        for region in regions:
            row = rows.setdefault(region.path, Row(region.path, region.depth))
            row.calls += 1
            row.total_ms += region.ms
            row.own_ms += region.ms
            row.host_ms += (region.host_stop_ns - region.host_start_ns) / 1e6
            row.peak_bytes = max(row.peak_bytes, region.peak_bytes)
        for path, row in rows.items():
            parent = path.rpartition("/")[0]
            if parent in rows:
                rows[parent].own_ms -= row.total_ms
        return Summary(
            _in_order(rows), self._place(), self.on_gpu, with_memory=self.memory
        )

    def chrome_trace(self, path: str | Path) -> Path:
        """Write the regions for ``chrome://tracing`` or ui.perfetto.dev.

        On a GPU there are two lanes, the device's time and the CPU's, both from the
        start of the first region: how far they lie apart is how full the queue was.

        Args:
            path: the JSON file to write.

        Returns:
            The same path.
        """
        regions = self._resolved()
        lanes = [self._place()] + ["CPU: queueing"] * self.on_gpu
        events: list[dict[str, Any]] = [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": i, "args": {"name": n}}
            for i, n in enumerate(lanes)
        ]
        origin = regions[0].host_start_ns if regions else 0
        for region in regions:
            event: dict[str, Any] = {
                "name": region.path.rpartition("/")[2],
                "cat": "region",
                "ph": "X",
                "pid": 0,
                "tid": 0,
                "ts": region.start_ms * 1e3,
                "dur": region.ms * 1e3,
                "args": {"path": region.path},
            }
            if self.memory:
                event["args"]["peak_bytes"] = region.peak_bytes
            events.append(event)
            if self.on_gpu:
                queued = {
                    "tid": 1,
                    "ts": (region.host_start_ns - origin) / 1e3,
                    "dur": (region.host_stop_ns - region.host_start_ns) / 1e3,
                }
                events.append(event | queued)
        path = Path(path)
        trace = {"traceEvents": events, "displayTimeUnit": "ms"}
        path.write_text(json.dumps(trace), encoding="utf-8")
        return path

    def _place(self) -> str:
        if self.on_gpu:
            return torch.cuda.get_device_name(self.device)
        return "CPU, monotonic clock"

    def _begin(self, region: _Region) -> None:
        if self.on_gpu:
            if self.memory:
                region.base_bytes = region.peak_bytes = self._fold_peak()
            region.start = self._event()
            self._origin = self._origin or region.start
        region.host_start_ns = time.perf_counter_ns()

    def _end(self, region: _Region) -> None:
        region.host_stop_ns = time.perf_counter_ns()
        if self.on_gpu:
            region.stop = self._event()
            if self.memory:
                self._fold_peak()
                region.peak_bytes -= region.base_bytes

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _fold_peak(self) -> int:
        """Give the peak since the last boundary to every open region; begin anew.

        Returns:
            What is in use now. (One nested dictionary of torch's has both numbers;
            its functions for either make a flat copy first, which takes far longer.)
        """
        stats = torch.cuda.memory_stats_as_nested_dict(self.device)
        if not stats:
            return 0  # nothing has been allocated yet
        now, peak = (stats["allocated_bytes"]["all"][k] for k in ("current", "peak"))
        for region in self._open:
            region.peak_bytes = max(region.peak_bytes, peak)
        torch.cuda.reset_peak_memory_stats(self.device)
        return int(now)

    def _watch_cpu(self, watching: ExitStack, region: _Region) -> None:
        """Mark the region among torch's own profiler's events."""
        number = len(self._regions)
        if not self._open:
            log = watching.enter_context(self._settled(number))
            watching.enter_context(allocations_into(log))
        watching.enter_context(torch.profiler.record_function(f"{REGION}{number}"))

    @contextmanager
    def _settled(self, first: int) -> Iterator[AllocationLog]:
        """Fill in the peaks of the regions that ran, once the log is complete."""
        log = AllocationLog([], {})
        yield log
        for number in range(first, len(self._regions)):
            span = log.spans.get(f"{REGION}{number}")
            if span:
                self._regions[number].peak_bytes = log.peak(*span)

    def _resolved(self) -> list[_Region]:
        """Return the finished regions with their times read."""
        done = [r for r in self._regions if r.host_stop_ns]
        if self.on_gpu and done:
            torch.cuda.synchronize(self.device)
            assert self._origin is not None
            for region in done:
                assert region.start is not None and region.stop is not None
                region.start_ms = self._origin.elapsed_time(region.start)
                region.ms = region.start.elapsed_time(region.stop)
        elif done:
            origin = done[0].host_start_ns
            for region in done:
                region.start_ms = (region.host_start_ns - origin) / 1e6
                region.ms = (region.host_stop_ns - region.host_start_ns) / 1e6
        return done


@contextmanager
def allocations_into(log: AllocationLog) -> Iterator[None]:
    """Log CPU allocations into a log that exists already."""
    with allocations() as found:
        yield
    log.changes, log.spans = found.changes, found.spans


def _in_order(rows: dict[str, Row]) -> list[Row]:
    """Put every region behind its parent, siblings in the order of first entry."""
    ordered: list[Row] = []

    def visit(parent: str) -> None:
        for path, row in rows.items():
            if path.rpartition("/")[0] == parent:
                ordered.append(row)
                visit(path)

    visit("")
    return ordered
