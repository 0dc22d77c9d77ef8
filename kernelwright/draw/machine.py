"""The machine tour: SMs with their warps, and the memories behind them."""

from __future__ import annotations

import html

from kernelwright.device import Device
from kernelwright.draw import palette
from kernelwright.measure.units import show_bytes, show_rate

_WIDTH, _SM_WIDTH, _SHOWN = 720, 216, 3
_WARPS, _LANES = 4, 32

STYLE = f"""
.kw-machine {{ margin: .5rem 0; max-width: 46rem; color: {palette.INK}; }}
.kw-machine svg {{ width: 100%; height: auto; display: block; }}
.kw-machine text {{ fill: {palette.INK}; font: 19px system-ui, sans-serif;
  text-anchor: middle; }}
.kw-machine .kw-small {{ fill: {palette.MUTED}; font-size: 17px; }}
.kw-machine rect {{ fill: var(--c); fill-opacity: .22; stroke: var(--c);
  stroke-width: 1.5; }}
.kw-machine line {{ stroke: {palette.LINE}; stroke-width: 6; }}
.kw-machine figcaption {{ color: {palette.MUTED}; font-weight: 400; }}
"""


class MachineTour:
    """A drawing of a GPU, with the numbers of this machine or, without one, an H200's.

    Args:
        device: what ``kernelwright.device()`` found.
    """

    def __init__(self, device: Device) -> None:
        self.is_here = device.is_gpu and device.sms is not None
        if self.is_here:
            self.name = device.name
            self.sms = device.sms or 0
            self.memory = show_bytes(device.memory_bytes)
            self.cache = show_bytes(device.cache_bytes)
            self.rate = f"{show_rate(device.copy_gbps * 1e9, 'B')}, copied here"
        else:
            self.name = "NVIDIA H200"
            self.sms, self.memory, self.cache = 132, "141 GB", "tens of MB"
            self.rate = "4.8 TB/s, by the data sheet"

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.sms} SMs, each with registers, shared memory and up "
            f"to 64 warps of 32 threads; one L2 cache ({self.cache}) for all of them; "
            f"behind it {self.memory} of global memory ({self.rate})."
        )

    __repr__ = __str__

    def svg(self) -> str:
        """Return the picture alone."""
        title = palette.unique("kw-title")
        parts: list[str] = []
        for sm in range(_SHOWN):
            # The last stands for all the others.
            number = self.sms - 1 if sm == _SHOWN - 1 else sm
            parts += self._sm(8 + sm * (_SM_WIDTH + 28), number)
        gap = 8 + 2 * _SM_WIDTH + 28 + 14
        parts.append(palette.text(gap, 120, "…"))
        parts += self._bar(292, f"L2 cache: {self.cache}, shared by all SMs", 2)
        parts += self._bar(392, f"global memory: {self.memory}, your tensors", 1)
        middle = _WIDTH / 2
        parts.append(f'<line x1="{middle}" y1="334" x2="{middle}" y2="390"/>')
        parts.append(
            palette.text(
                middle + 16,
                368,
                self.rate,
                class_="kw-small",
                style="text-anchor:start",
            )
        )
        return (
            f'<svg viewBox="0 0 {_WIDTH} 440" role="img" aria-labelledby="{title}" '
            f'xmlns="http://www.w3.org/2000/svg"><title id="{title}">'
            f"{html.escape(str(self))}</title>{''.join(parts)}</svg>"
        )

    def _repr_html_(self) -> str:
        whose = "This machine" if self.is_here else "An H200; this machine has no GPU"
        return (
            f'<figure class="kw-machine"><style>{STYLE}</style>{self.svg()}'
            f"<figcaption>{html.escape(whose)}: all {self.sms} SMs share one way to "
            "memory, and it is the narrow place of this chapter.</figcaption></figure>"
        )

    def _sm(self, x: float, number: int) -> list[str]:
        middle = x + _SM_WIDTH / 2
        parts = [
            palette.box(x, 8, _SM_WIDTH, 238, style=f"--c: {palette.LINE}"),
            palette.text(middle, 32, f"SM {number}"),
            f'<line x1="{middle:g}" y1="246" x2="{middle:g}" y2="292"/>',
        ]
        step = (_SM_WIDTH - 24) / _LANES
        for warp in range(_WARPS):
            colour = palette.series(0)
            for lane in range(_LANES):
                parts.append(
                    f'<rect x="{x + 12 + lane * step:g}" y="{46 + warp * 17}" '
                    f'width="{step - 1.5:g}" height="12" style="--c: {colour}"/>'
                )
        parts.append(
            palette.text(middle, 132, "up to 64 warps of 32", class_="kw-small")
        )
        for row, label in enumerate(("registers, 256 KB", "shared / L1, 256 KB")):
            y = 146 + row * 48
            style = f"--c: {palette.series(3 + row)}"
            parts.append(palette.box(x + 12, y, _SM_WIDTH - 24, 40, style=style))
            parts.append(palette.text(middle, y + 26, label))
        return parts

    def _bar(self, y: float, label: str, colour: int) -> list[str]:
        style = f"--c: {palette.series(colour)}"
        return [
            palette.box(8, y, _WIDTH - 16, 42, style=style),
            palette.text(_WIDTH / 2, y + 28, label),
        ]


def machine_tour(device: Device) -> MachineTour:
    """Draw a GPU: SMs, warps, and the levels of memory with this machine's numbers."""
    return MachineTour(device)
