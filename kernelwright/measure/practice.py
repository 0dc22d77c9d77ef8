"""A practice GPU: two clocks and a queue, with the functions that time a real one.

What makes timing a GPU hard is not the GPU. A launch returns before the work is done,
the first launch compiles, and a cache remembers the last call. ``PracticeGPU`` has
just these properties and no others. It computes nothing: each kernel is told how long
it takes. So the right answer of every measurement is known, on any machine, and an
honest timer can be told from one that lies.

The names are those of ``torch.cuda``: a function that is handed a practice GPU as
``gpu`` works as it is with ``torch.cuda`` in its place.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

_BLOCK = 512
"""Bytes that torch's allocator rounds a request up to."""


@dataclass(frozen=True)
class Operation:
    """One thing that the CPU or the GPU did.

    Args:
        lane: who did it.
        kind: on the CPU ``launch``, ``compile``, ``event``, ``wait`` or ``read``; on
            the GPU ``kernel``, ``flush``, or ``mark``: an event that it came to.
        name: of the kernel, where there is one.
        start_ms, stop_ms: on the clock that both share.
    """

    lane: Literal["CPU", "GPU"]
    kind: str
    name: str
    start_ms: float
    stop_ms: float


class PracticeGPU:
    """A GPU whose every duration is known beforehand.

    The CPU queues work and goes on; the GPU does the work in order. Time passes only
    through the calls below.

    Args:
        launch_ms: what one launch costs the CPU.
        event_ms: what recording an event, or reading the clock, costs the CPU.
        wake_ms: how long the CPU needs to notice that a wait is over.
        flush_ms: how long the GPU needs to fill its cache with something else.
    """

    def __init__(
        self,
        *,
        launch_ms: float = 0.004,
        event_ms: float = 0.001,
        wake_ms: float = 0.006,
        flush_ms: float = 0.12,
    ) -> None:
        self.launch_ms, self.event_ms = launch_ms, event_ms
        self.wake_ms, self.flush_ms = wake_ms, flush_ms
        self.cpu_ms = 0.0
        self.free_ms = 0.0
        self.log: list[Operation] = []
        self._cached: set[str] = set()
        self._allocated = self._peak = 0

    # --- time ---------------------------------------------------------------------

    def perf_counter(self) -> float:
        """Read the CPU's clock, in seconds, as ``time.perf_counter`` does."""
        self._on_cpu("read", "", self.event_ms)
        return self.cpu_ms / 1e3

    def synchronize(self) -> None:
        """Wait until the GPU has done all that was queued."""
        self._on_cpu("wait", "", max(0.0, self.free_ms - self.cpu_ms) + self.wake_ms)

    def Event(self, enable_timing: bool = False) -> PracticeEvent:
        """Make an event, as ``torch.cuda.Event`` does."""
        return PracticeEvent(self, enable_timing)

    def flush(self) -> None:
        """Queue work that pushes everything out of the cache."""
        self._on_cpu("launch", "flush", self.launch_ms)
        self._on_gpu("flush", "flush", self.flush_ms)
        self._cached.clear()

    def kernel(
        self,
        name: str,
        cold_ms: Sequence[float] | float,
        warm_ms: Sequence[float] | float | None = None,
        *,
        compile_ms: float = 0.0,
        reads: str = "x",
    ) -> PracticeKernel:
        """Make a kernel; call it to launch it.

        Args:
            name: what pictures call it.
            cold_ms: how long it takes with its input in memory: always the same, or
                one number for each launch in turn (the last for all further ones).
            warm_ms: how long with its input in the cache; as ``cold_ms`` if not given.
            compile_ms: what its first launch costs the CPU besides.
            reads: name of its input; it is in the cache once a kernel has read it.
        """
        cold = _listed(cold_ms)
        warm = cold if warm_ms is None else _listed(warm_ms)
        return PracticeKernel(self, name, cold, warm, compile_ms, reads)

    # --- memory -------------------------------------------------------------------

    def memory_allocated(self) -> int:
        """Return the bytes that are in use now."""
        return self._allocated

    def max_memory_allocated(self) -> int:
        """Return the most bytes in use at once since the last reset."""
        return self._peak

    def reset_peak_memory_stats(self) -> None:
        """Begin a new maximum at what is in use now."""
        self._peak = self._allocated

    def empty(self, nbytes: int) -> PracticeTensor:
        """Allocate memory; it is free again when nothing refers to the result."""
        return PracticeTensor(self, nbytes)

    def _take(self, nbytes: int) -> None:
        self._allocated += nbytes
        self._peak = max(self._peak, self._allocated)

    def _give_back(self, nbytes: int) -> None:
        self._allocated -= nbytes

    # --- the two clocks -----------------------------------------------------------

    def _on_cpu(self, kind: str, name: str, ms: float) -> None:
        start = self.cpu_ms
        self.cpu_ms += ms
        self.log.append(Operation("CPU", kind, name, start, self.cpu_ms))

    def _on_gpu(self, kind: str, name: str, ms: float) -> None:
        start = max(self.cpu_ms, self.free_ms)
        self.free_ms = start + ms
        self.log.append(Operation("GPU", kind, name, start, self.free_ms))


class PracticeEvent:
    """A mark in the queue of a practice GPU; see ``torch.cuda.Event``."""

    def __init__(self, gpu: PracticeGPU, enable_timing: bool) -> None:
        self.gpu, self.enable_timing = gpu, enable_timing
        self.reached_ms: float | None = None

    def record(self) -> None:
        """Queue the mark: the GPU notes the time when it comes to it."""
        self.gpu._on_cpu("event", "", self.gpu.event_ms)
        self.reached_ms = max(self.gpu.cpu_ms, self.gpu.free_ms)
        mark = Operation("GPU", "mark", "", self.reached_ms, self.reached_ms)
        self.gpu.log.append(mark)

    def query(self) -> bool:
        """Say whether the GPU has come to it."""
        return self.reached_ms is not None and self.reached_ms <= self.gpu.cpu_ms

    def synchronize(self) -> None:
        """Wait until the GPU has come to it."""
        left = 0.0 if self.reached_ms is None else self.reached_ms - self.gpu.cpu_ms
        self.gpu._on_cpu("wait", "", max(0.0, left) + self.gpu.wake_ms)

    def elapsed_time(self, later: PracticeEvent) -> float:
        """Return the ms from this event to a later one, on the GPU's clock.

        Raises:
            RuntimeError: an event was made without timing, was never recorded, or has
                not been reached yet.
        """
        for event in (self, later):
            if not event.enable_timing:
                raise RuntimeError(
                    "an event keeps no time unless it is made with Event("
                    "enable_timing=True)"
                )
            if event.reached_ms is None:
                raise RuntimeError("an event was never recorded: call its record()")
            if not event.query():
                raise RuntimeError(
                    "the GPU has not come to an event yet: call gpu.synchronize() "
                    "before elapsed_time"
                )
        assert self.reached_ms is not None and later.reached_ms is not None
        return later.reached_ms - self.reached_ms


@dataclass(eq=False)  # a dictionary's key, as any function may be
class PracticeKernel:
    """A kernel of a practice GPU: calling it launches it, and returns at once."""

    gpu: PracticeGPU
    name: str
    cold_ms: tuple[float, ...]
    warm_ms: tuple[float, ...]
    compile_ms: float
    reads: str
    launches: int = 0

    def __call__(self) -> None:
        """Launch it once."""
        if self.launches == 0 and self.compile_ms:
            self.gpu._on_cpu("compile", self.name, self.compile_ms)
        times = self.warm_ms if self.reads in self.gpu._cached else self.cold_ms
        self.gpu._on_cpu("launch", self.name, self.gpu.launch_ms)
        self.gpu._on_gpu("kernel", self.name, times[min(self.launches, len(times) - 1)])
        self.gpu._cached.add(self.reads)
        self.launches += 1


class PracticeTensor:
    """Memory of a practice GPU, in use for as long as something refers to it."""

    def __init__(self, gpu: PracticeGPU, nbytes: int) -> None:
        self.nbytes = nbytes
        held = -(-nbytes // _BLOCK) * _BLOCK
        gpu._take(held)
        release: Callable[[int], None] = gpu._give_back
        weakref.finalize(self, release, held)


def _listed(value: Sequence[float] | float) -> tuple[float, ...]:
    """Return one or more durations as a tuple."""
    return (float(value),) if isinstance(value, int | float) else tuple(value)
