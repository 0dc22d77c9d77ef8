"""What a measurement found, and what it is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelwright.measure.interval import median_interval
from kernelwright.measure.units import four_digits, show_rate, time_unit


@dataclass(frozen=True, repr=False)
class Timing:
    """The time of one call: median, interval, samples, and how they were taken.

    Args:
        median_ms: median time of one call in milliseconds.
        low_ms: lower end of the median's confidence interval.
        high_ms: upper end.
        samples: every sample in ms, in the order in which it was taken.
        level: the confidence of the interval, 0 to 1.
        clock: ``device events`` or ``monotonic clock``.
        device: name of what ran it.
        calls: calls in a sample; its time is divided by them.
        copies: over how many copies of the inputs the calls rotated.
        footprint: bytes of all those copies.
        cold: whether the inputs came from memory and not from a cache.
        notes: what a reader must know before believing the number.
        bytes_moved: bytes that one call must move, if told.
        flops: floating-point operations of one call, if told.
    """

    median_ms: float
    low_ms: float
    high_ms: float
    samples: tuple[float, ...]
    level: float
    clock: str
    device: str
    calls: int = 1
    copies: int = 1
    footprint: int = 0
    cold: bool = False
    notes: tuple[str, ...] = ()
    bytes_moved: int | None = None
    flops: int | None = None
    label: str = field(default="", compare=False)

    @classmethod
    def of(
        cls,
        samples_ms: Sequence[float],
        *,
        clock: str,
        device: str,
        calls: int = 1,
        copies: int = 1,
        footprint: int = 0,
        cold: bool = False,
        notes: tuple[str, ...] = (),
        bytes_moved: int | None = None,
        flops: int | None = None,
        label: str = "",
    ) -> Timing:
        """Sum up samples in milliseconds."""
        found = median_interval(samples_ms)
        return cls(
            found.median,
            found.low,
            found.high,
            tuple(samples_ms),
            found.level,
            clock,
            device,
            calls,
            copies,
            footprint,
            cold,
            notes,
            bytes_moved,
            flops,
            label,
        )

    @classmethod
    def not_measured(cls, device: str, label: str) -> Timing:
        """Stand for the time of what only imitates a GPU."""
        nan = math.nan
        return cls(nan, nan, nan, (), 0.0, "none", device, label=label)

    @property
    def n(self) -> int:
        """How many samples were taken."""
        return len(self.samples)

    @property
    def gbps(self) -> float | None:
        """Bandwidth in GB/s (10^9 bytes a second), if the bytes were told."""
        if self.bytes_moved is None:
            return None
        return self.bytes_moved / self.median_ms / 1e6

    @property
    def tflops(self) -> float | None:
        """Arithmetic rate in TFLOP/s, if the operations were told."""
        if self.flops is None:
            return None
        return self.flops / self.median_ms / 1e9

    def __repr__(self) -> str:
        head = f"{self.label}: " if self.label else ""
        if not self.samples:
            return f"{head}not measured: the emulator has no GPU's clock"
        size, unit = time_unit(self.median_ms)
        low, high = four_digits(self.low_ms / size), four_digits(self.high_ms / size)
        parts = [
            f"{four_digits(self.median_ms / size)} {unit}",
            f"({self.level:.0%} interval {low} to {high} {unit}, n = {self.n})",
        ]
        rates = []
        if self.bytes_moved is not None:
            rates.append(show_rate(self.bytes_moved / self.median_ms * 1e3, "B"))
        if self.flops is not None:
            rates.append(show_rate(self.flops / self.median_ms * 1e3, "FLOP"))
        tail = "".join(f"\n  note: {note}" for note in self.notes)
        place = " on the CPU" if self.clock == "monotonic clock" else ""
        return head + ", ".join([" ".join(parts), *rates]) + place + tail
