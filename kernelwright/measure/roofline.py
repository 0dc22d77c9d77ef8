"""The roofline: what bounds a kernel, and how close to its bound it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelwright.measure.timing import Timing
from kernelwright.measure.units import four_digits, three_digits


@dataclass(frozen=True)
class Point:
    """One kernel on the roofline.

    Args:
        label: its name.
        flops: floating-point operations of one call.
        bytes_moved: least bytes that one call must move.
        ms: measured time of one call; ``None`` where it was not measured.
        roof: name of the arithmetic ceiling that holds for it; ``None`` is the
            highest.
    """

    label: str
    flops: float
    bytes_moved: float
    ms: float | None = None
    roof: str | None = None

    @property
    def intensity(self) -> float:
        """Arithmetic intensity in FLOP/byte."""
        return self.flops / self.bytes_moved

    @property
    def tflops(self) -> float | None:
        """Measured rate in TFLOP/s."""
        return None if self.ms is None else self.flops / self.ms / 1e9


@dataclass(frozen=True, repr=False)
class Roofline:
    """Ceilings of a machine, and kernels below them.

    Args:
        name: the machine.
        gbps: the ceiling of moving bytes, in GB/s.
        roofs: ceilings of arithmetic by name, in TFLOP/s.
        points: the kernels.
        source: where the ceilings come from, for the caption.
    """

    name: str
    gbps: float
    roofs: Mapping[str, float]
    points: tuple[Point, ...] = ()
    source: str = "ceilings measured"

    def roof(self, name: str | None = None) -> float:
        """Return an arithmetic ceiling in TFLOP/s: by name, or the highest."""
        return self.roofs[name] if name else max(self.roofs.values())

    def ridge(self, roof: str | None = None) -> float:
        """Return the intensity in FLOP/byte from which on arithmetic is the limit."""
        return self.roof(roof) * 1e3 / self.gbps

    def attainable(self, intensity: float, roof: str | None = None) -> float:
        """Return the most TFLOP/s that a kernel of this intensity can reach."""
        return min(intensity * self.gbps / 1e3, self.roof(roof))

    def bound_ms(
        self, flops: float, bytes_moved: float, roof: str | None = None
    ) -> float:
        """Return the least time in ms: bytes or operations, whichever takes longer."""
        return max(bytes_moved / self.gbps / 1e6, flops / self.roof(roof) / 1e9)

    def limit(self, point: Point) -> str:
        """Say what bounds a kernel: ``memory`` or ``arithmetic``."""
        below = point.intensity < self.ridge(point.roof)
        return "memory" if below else "arithmetic"

    def share(self, point: Point) -> float | None:
        """Return which fraction of its bound a measured kernel reaches."""
        if point.ms is None:
            return None
        return self.bound_ms(point.flops, point.bytes_moved, point.roof) / point.ms

    def table(self) -> list[list[str]]:
        """Return headings and cells as text."""
        lines = [["kernel", "FLOP/byte", "limit", "bound ms", "measured ms", "share"]]
        for p in self.points:
            share = self.share(p)
            lines.append(
                [
                    p.label,
                    f"{p.intensity:,.2f}",
                    self.limit(p),
                    four_digits(self.bound_ms(p.flops, p.bytes_moved, p.roof)),
                    "not measured" if p.ms is None else four_digits(p.ms),
                    "–" if share is None else f"{share:.0%}",
                ]
            )
        return lines

    def caption(self) -> str:
        """Return the ceilings in one sentence."""
        roofs = ", ".join(
            f"{name} {three_digits(rate)} TFLOP/s" for name, rate in self.roofs.items()
        )
        return (
            f"{self.name}: {self.gbps:,.0f} GB/s, {roofs} ({self.source}). The roof "
            f"bends at {three_digits(self.ridge())} FLOP/byte: memory is the limit to "
            "the left of it, arithmetic to the right."
        )

    def __repr__(self) -> str:
        lines = self.table()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = [
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True))
            for line in lines
        ]
        return "\n".join([self.caption(), *(line.rstrip() for line in shown)])

    def svg(self) -> str:
        """Return the picture alone."""
        from kernelwright.measure.roofline_figure import draw

        return draw(self)

    def _repr_html_(self) -> str:
        from kernelwright.measure.roofline_figure import page

        return page(self)


def roofline(
    *points: Timing | Point,
    gbps: float | None = None,
    roofs: Mapping[str, float] | None = None,
    name: str | None = None,
    source: str | None = None,
) -> Roofline:
    """Place kernels under the ceilings of this machine, measured, or of another.

    Args:
        *points: timings that were told ``bytes_moved`` and ``flops``, or ``Point``s.
        gbps: copy bandwidth in GB/s; this machine's measured one if not given.
        roofs: arithmetic ceilings in TFLOP/s by name; this machine's measured matmul
            rate if not given.
        name: the machine's name.
        source: where the ceilings come from.

    Returns:
        The numbers (``ridge``, ``attainable``, ``bound_ms``, ``share``) and, in a
        notebook, the figure.

    Raises:
        ValueError: a timing without bytes or operations, or a ceiling that is not
            positive, or a point below a roof that is not there.
    """
    placed = tuple(_point(p) for p in points)
    if gbps is None or roofs is None:
        from kernelwright.device import device

        here = device()
        ceilings = here.ceilings
        gbps = gbps or ceilings.copy_gbps
        roofs = roofs or {f"matmul {ceilings.matmul_dtype}": ceilings.matmul_tflops}
        name = name or here.name
        source = source or f"measured {ceilings.measured}"
    if not gbps > 0 or not roofs or not all(rate > 0 for rate in roofs.values()):
        raise ValueError(
            f"gbps={gbps}, roofs={dict(roofs)}: wanted positive ceilings, and at "
            "least one roof"
        )
    unknown = {p.roof for p in placed if p.roof} - set(roofs)
    if unknown:
        raise ValueError(f"no roof {sorted(unknown)}; there are {sorted(roofs)}")
    return Roofline(
        name or "a machine", gbps, dict(roofs), placed, source or "ceilings as given"
    )


def _point(found: Timing | Point) -> Point:
    if isinstance(found, Timing):
        if not found.bytes_moved or not found.flops:
            raise ValueError(
                f"the timing {found.label or 'without a label'} does not know its "
                "bytes and operations: pass bytes_moved= and flops= to kw.bench"
            )
        return Point(
            found.label or "kernel", found.flops, found.bytes_moved, found.median_ms
        )
    if found.flops <= 0 or found.bytes_moved <= 0:
        raise ValueError(
            f"{found.label}: flops={found.flops}, bytes_moved={found.bytes_moved}; "
            "a logarithmic axis has no place for zero"
        )
    return found


def log_ticks(low: float, high: float) -> Sequence[float]:
    """Return the powers of ten from low to high."""
    return [
        10.0**k for k in range(math.ceil(math.log10(low)), int(math.log10(high)) + 1)
    ]
