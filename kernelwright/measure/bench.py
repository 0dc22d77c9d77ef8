"""``bench``: how long one call takes, measured so that the number can be believed."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from kernelwright.imitated import imitates
from kernelwright.measure.clocks import Call, Clock, DeviceClock, MonotonicClock
from kernelwright.measure.cores import cache_bytes, cpu_name, memory_available
from kernelwright.measure.fresh import CACHES, Rotation, rotate, tensors_in
from kernelwright.measure.timing import Timing

_SHORTEST_MS = 0.05
"""Calls shorter than this are timed in groups: an event resolves half a microsecond."""

_LEAST_SAMPLES = 7
"""Fewer than six samples cannot hold a 95% interval of the median."""

_MOST_SAMPLES = 1000
_BATCH = 64
_CPU_COPIES_BYTES = 512 * 1024**2


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """Keep Python's garbage collector out of the samples."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_quiet_collector()
def bench(
    fn: Callable[..., object],
    *args: Any,
    bytes_moved: int | None = None,
    flops: int | None = None,
    seconds: float = 0.3,
    samples: int | None = None,
    device: torch.device | str | None = None,
    label: str = "",
) -> Timing:
    """Time one call of ``fn(*args)``, with inputs that no cache holds.

    The tensors among the arguments are copied until all copies together pass four
    last-level caches, and the calls rotate through the copies. On a GPU the time is
    the device's own, between two events with the launch queue kept full; elsewhere
    a monotonic clock is read. What the emulator or Triton's interpreter runs is run
    once and not timed: it says nothing of a GPU's time.

    Args:
        fn: what to time: a function, or ``kernel[grid, block]``.
        *args: its arguments. Tensors that ``fn`` captured instead are not copied.
        bytes_moved: least bytes that one call moves; gives GB/s.
        flops: floating-point operations of one call; gives TFLOP/s.
        seconds: about how long to go on taking samples.
        samples: how many to take instead.
        device: where ``fn`` runs; found from the arguments if not given.
        label: a name to print before the numbers.

    Returns:
        Median, confidence interval and samples of the time of one call; no samples
        where there is nothing to time.

    Raises:
        ValueError: ``samples`` or ``seconds`` is not positive.
    """
    if (samples is not None and samples < 1) or not seconds > 0:
        raise ValueError(f"samples={samples}, seconds={seconds}: both must be positive")
    place = _place(args, device)
    if place.type == "cpu" and imitates(fn, *args):
        return Timing.not_measured(_name(place), label)
    rotation = _rotation(args, place)
    clock = _clock(place, rotation)
    notes: list[str] = []
    calls: list[Call] = [partial(fn, *turn) for turn in rotation.turns]
    each_ms = _warm_up(clock, calls, min(0.1, seconds / 3))
    group, count = plan(each_ms, seconds, samples, grouped=not _scrubbed(clock))
    found = _take(clock, calls, group, count)
    if isinstance(clock, DeviceClock) and clock.starved:
        notes.append(
            "the calls wait for the device or launch slower than it works: "
            "launch overhead is included"
        )
    cold = rotation.cold or _scrubbed(clock)
    if not cold:
        notes.append(_warm_note(rotation))
    return Timing.of(
        [sample / group for sample in found],
        clock=clock.name,
        device=_name(place),
        calls=group,
        copies=len(rotation.turns),
        footprint=rotation.footprint,
        cold=cold,
        notes=tuple(notes),
        bytes_moved=bytes_moved,
        flops=flops,
        label=label,
    )


def plan(
    each_ms: float, seconds: float, samples: int | None, *, grouped: bool
) -> tuple[int, int]:
    """Choose how many calls make a sample, and how many samples are taken.

    Args:
        each_ms: roughly what one call takes.
        seconds: about how long all samples may take together.
        samples: the number asked for, if any.
        grouped: whether several calls may make one sample.
    """
    each_ms = max(each_ms, 1e-6)
    group = max(1, math.ceil(_SHORTEST_MS / each_ms)) if grouped else 1
    if samples is None:
        fitting = int(seconds * 1e3 / (each_ms * group))
        samples = min(_MOST_SAMPLES, max(_LEAST_SAMPLES, fitting))
    return group, samples


def _place(args: tuple[Any, ...], device: torch.device | str | None) -> torch.device:
    """Decide where the calls run: as told, else where their tensors are."""
    if device is not None:
        return torch.device(device)
    for argument in args:
        for tensor in tensors_in(argument):
            if tensor.is_cuda:
                return tensor.device
    if any(tensors_in(argument) for argument in args):
        return torch.device("cpu")
    # Nothing but captured tensors: a GPU that is in use is where they are.
    in_use: bool = torch.cuda.is_initialized()
    return torch.device("cuda" if in_use else "cpu")


def _rotation(args: tuple[Any, ...], place: torch.device) -> Rotation:
    """Copy the arguments as often as the machine's caches and memory ask for."""
    if place.type == "cuda":
        free, _ = torch.cuda.mem_get_info(place)
        return rotate(args, cache_bytes=_l2_bytes(place), room=free // 2)
    room = min(memory_available() // 4, _CPU_COPIES_BYTES)
    return rotate(args, cache_bytes=cache_bytes(), room=room)


def _clock(place: torch.device, rotation: Rotation) -> Clock:
    """Choose the clock; inputs that cannot be rotated are scrubbed from the L2."""
    if place.type != "cuda":
        return MonotonicClock()
    if rotation.cold:
        return DeviceClock(place)
    size = CACHES * _l2_bytes(place)
    waste = torch.empty(size, dtype=torch.uint8, device=place)
    return DeviceClock(place, scrub=lambda: _scrub(waste))


def _warm_note(rotation: Rotation) -> str:
    """Say why the inputs may have come from a cache."""
    if rotation.footprint == 0:
        return "no tensors were passed, so every call met the same ones, cached"
    return "the inputs fit in the CPU's caches: memory is not what was timed"


def _scrub(waste: torch.Tensor) -> None:
    """Fill the cache with something else."""
    waste.fill_(1)


def _scrubbed(clock: Clock) -> bool:
    """Say whether the cache is emptied before every sample."""
    return isinstance(clock, DeviceClock) and clock.scrub is not None


def _warm_up(clock: Clock, calls: list[Call], seconds: float) -> float:
    """Run until compilers, caches and clocks have settled; estimate a call's ms."""
    calls[0]()
    clock.settle()
    deadline = time.monotonic() + seconds
    position, least = 0, math.inf
    while True:
        group = [calls[(position + i) % len(calls)] for i in range(3)]
        position += 3
        least = min(least, clock.sample([group])[0] / 3)
        if time.monotonic() >= deadline:
            return least


def _take(clock: Clock, calls: list[Call], group: int, count: int) -> list[float]:
    """Take the samples, batch by batch, rotating through the calls."""
    found: list[float] = []
    position = 0
    # A launch queue holds about a thousand entries; a full one blocks the CPU.
    batch = max(1, min(_BATCH, 512 // group))
    while len(found) < count:
        groups = []
        for _ in range(min(batch, count - len(found))):
            groups.append([calls[(position + i) % len(calls)] for i in range(group)])
            position += group
        found += clock.sample(groups)
    return found


def _l2_bytes(place: torch.device) -> int:
    """Return the size of the GPU's L2 cache."""
    return int(torch.cuda.get_device_properties(place).L2_cache_size)


def _name(place: torch.device) -> str:
    """Name what runs the calls."""
    return torch.cuda.get_device_name(place) if place.type == "cuda" else cpu_name()
