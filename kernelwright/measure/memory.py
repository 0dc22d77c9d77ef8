"""How much memory a call needs at its worst moment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.measure.fresh import tensors_in
from kernelwright.measure.units import show_bytes


@dataclass(frozen=True, repr=False)
class MemoryUse:
    """What one call did to torch's memory.

    Args:
        peak_bytes: the most in use during the call, beyond what was in use before.
        result_bytes: what its result holds.
        kept_bytes: what stays in use when the result is gone: caches, or a leak.
        device: where.
        source: who counted.
    """

    peak_bytes: int
    result_bytes: int
    kept_bytes: int
    device: str
    source: str

    def __repr__(self) -> str:
        parts = [f"peak {show_bytes(self.peak_bytes)}"]
        parts.append(f"result {show_bytes(self.result_bytes)}")
        if self.kept_bytes:
            parts.append(f"kept afterwards {show_bytes(self.kept_bytes)}")
        return f"{', '.join(parts)} on {self.device} ({self.source})"


def peak_memory(
    fn: Callable[..., object],
    *args: Any,
    device: torch.device | str | None = None,
    warm_up: bool = True,
) -> MemoryUse:
    """Measure the memory that ``fn(*args)`` needs beyond what is in use already.

    On a GPU torch's caching allocator is asked. On a CPU torch's profiler reports
    every allocation of torch's, temporaries inside an operation included. Neither
    sees what others allocate: NumPy, CuPy, the driver, a kernel's local memory.

    Args:
        fn: what to measure.
        *args: its arguments.
        device: where ``fn`` allocates; found from the arguments if not given.
        warm_up: call it once before: libraries make their workspaces then.

    Returns:
        Peak, what the result holds, and what is left when the result is dropped.
    """
    place = _place(args, device)
    if warm_up:
        fn(*args)
    if place.type == "cuda":
        return _on_gpu(fn, args, place)
    return _on_cpu(fn, args)


def _place(args: Sequence[Any], device: torch.device | str | None) -> torch.device:
    if device is not None:
        return torch.device(device)
    found = [t for argument in args for t in tensors_in(argument)]
    for tensor in found:
        if tensor.is_cuda:
            return tensor.device
    if found:
        return torch.device("cpu")
    return torch.device("cuda" if torch.cuda.is_initialized() else "cpu")


def _on_gpu(
    fn: Callable[..., object], args: Sequence[Any], place: torch.device
) -> MemoryUse:
    torch.cuda.synchronize(place)
    before = torch.cuda.memory_allocated(place)
    torch.cuda.reset_peak_memory_stats(place)
    result = fn(*args)
    peak = torch.cuda.max_memory_allocated(place)
    held = torch.cuda.memory_allocated(place)
    del result
    after = torch.cuda.memory_allocated(place)
    return MemoryUse(
        peak - before,
        held - after,
        after - before,
        torch.cuda.get_device_name(place),
        "torch's CUDA allocator",
    )


def _on_cpu(fn: Callable[..., object], args: Sequence[Any]) -> MemoryUse:
    with allocations() as log:
        with torch.profiler.record_function(_CALL):
            result = fn(*args)
        del result
    inside = log.spans[_CALL]
    return MemoryUse(
        log.peak(*inside),
        log.level(inside[1]) - log.level(),
        log.level(),
        "the CPU",
        "torch.profiler",
    )


_CALL = "kernelwright: call"
REGION = "kernelwright: region "
"""Names that mark stretches of time among the profiler's events."""


@dataclass
class AllocationLog:
    """Allocations (+) and releases (-) of CPU memory in the order of time.

    Args:
        changes: pairs of a time in ns and a number of bytes.
        spans: the stretches that were marked, by name, in ns.
    """

    changes: list[tuple[int, int]]
    spans: dict[str, tuple[int, int]]

    def level(self, until_ns: float = float("inf")) -> int:
        """Return the bytes in use at a time, relative to the beginning."""
        return sum(size for at, size in self.changes if at <= until_ns)

    def peak(self, start_ns: int, stop_ns: int) -> int:
        """Return the most in use in a stretch, relative to its beginning."""
        level = most = 0
        for at, size in self.changes:
            if start_ns < at <= stop_ns:
                level += size
                most = max(most, level)
        return most


@contextmanager
def allocations() -> Iterator[AllocationLog]:
    """Log what torch allocates on the CPU; filled when the block has ended."""
    # Read when the profiler first starts; without it each start prints a line.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    log = AllocationLog([], {})
    # What torch.profiler.profile wraps; that one would import the whole compiler first,
    # a second and a half.
    with torch.autograd.profiler.profile(
        profile_memory=True, acc_events=True
    ) as profile:
        yield log
    results = profile.kineto_results
    assert results is not None  # it was entered, and has ended
    events = results.events()
    for event in events:
        name = event.name()
        on_cpu = event.device_type().name == "CPU"
        if name == "[memory]" and on_cpu:
            log.changes.append((event.start_ns(), event.nbytes()))
        elif name == _CALL or name.startswith(REGION):
            start = event.start_ns()
            log.spans[name] = (start, start + event.duration_ns())
    log.changes.sort(key=lambda change: change[0])
