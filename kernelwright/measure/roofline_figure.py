"""The roofline drawn: logarithmic axes, roofs, kernels, and a reader's own intensity.

SVG by hand in the colours of ``kernelwright.draw.palette``: it stands alone in the
book, in light and dark, and on a GPU machine that has no plotting library.
"""

from __future__ import annotations

import html
import json
import math

from kernelwright.draw import palette
from kernelwright.measure.roofline import Roofline, log_ticks
from kernelwright.measure.units import three_digits

_WIDTH, _HEIGHT = 760, 470
_LEFT, _RIGHT, _TOP, _BOTTOM = 92, 34, 24, 70

STYLE = f"""
.kw-roof {{ margin: .5rem 0; max-width: 46rem; color: {palette.INK}; }}
.kw-roof svg {{ width: 100%; height: auto; display: block; }}
.kw-roof text {{ fill: {palette.INK}; font: 18px system-ui, sans-serif; }}
.kw-roof .kw-small {{ fill: {palette.MUTED}; font-size: 17px; }}
.kw-roof .kw-end {{ text-anchor: end; }}
.kw-roof .kw-mid {{ text-anchor: middle; }}
.kw-roof .kw-grid {{ stroke: {palette.LINE}; stroke-opacity: .35; }}
.kw-roof .kw-line {{ stroke: var(--c); stroke-width: 3; fill: none; }}
.kw-roof .kw-drop {{ stroke: var(--c); stroke-width: 1.5; stroke-dasharray: 3 4; }}
.kw-roof circle {{ fill: var(--c); stroke: {palette.INK}; stroke-width: 1; }}
.kw-roof .kw-open {{ fill: none; stroke: var(--c); stroke-width: 2.5; }}
.kw-roof .kw-probe line {{ stroke: {palette.BAD}; stroke-width: 2; }}
.kw-roof .kw-probe circle {{ fill: {palette.BAD}; stroke: none; }}
.kw-roof .kw-control {{ display: flex; flex-wrap: wrap; gap: .3rem .7rem;
  align-items: center; margin: .4rem 0; }}
.kw-roof input {{ flex: 1 1 12rem; min-width: 0; }}
.kw-roof output {{ flex: 1 1 100%; min-height: 2.6em; }}
.kw-roof figcaption {{ color: {palette.MUTED}; text-align: left; }}
.kw-roof .kw-table {{ overflow-x: auto; }}
.kw-roof th, .kw-roof td {{ padding: .1rem .7rem .1rem 0; text-align: left; }}
"""

SCRIPT = """
function (id, d) {
  const root = document.getElementById(id);
  if (!root) return;
  const slider = root.querySelector("input");
  const words = root.querySelector("output");
  const probe = root.querySelector(".kw-probe");
  const show = () => {
    const at = Math.pow(10, Number(slider.value));
    const byMemory = at * d.gbps / 1e3;
    const rate = Math.min(byMemory, d.roof);
    const x = d.left + (Math.log10(at) - d.x0) * d.sx;
    const y = d.bottom - (Math.log10(rate) - d.y0) * d.sy;
    const line = probe.querySelector("line"), dot = probe.querySelector("circle");
    line.setAttribute("x1", x); line.setAttribute("x2", x);
    line.setAttribute("y1", d.bottom); line.setAttribute("y2", y);
    dot.setAttribute("cx", x); dot.setAttribute("cy", y);
    const share = Math.round(100 * rate / d.roof);
    words.textContent = at.toPrecision(3) + " FLOP/byte: at most " +
      rate.toPrecision(3) + " TFLOP/s, " + (share < 1 ? "under 1" : share) +
      "% of the arithmetic roof; " + (byMemory < d.roof ?
      "memory is the limit" : "arithmetic is the limit");
  };
  slider.addEventListener("input", show);
  show();
}
""".strip()


class Axes:
    """The two logarithmic axes, wide enough for all roofs and points."""

    def __init__(self, roof: Roofline) -> None:
        at = [roof.ridge(name) for name in roof.roofs]
        at += [p.intensity for p in roof.points]
        rates = [*roof.roofs.values(), *(p.tflops or math.inf for p in roof.points)]
        self.x0 = math.floor(math.log10(min(min(at) / 3, 0.1)))
        self.x1 = math.ceil(math.log10(max(max(at) * 3, 100)))
        self.y1 = math.log10(max(roof.roofs.values()) * 2.2)
        lowest = min([*rates, roof.attainable(10.0**self.x0)])
        self.y0 = math.log10(lowest / 1.5)
        self.sx = (_WIDTH - _LEFT - _RIGHT) / (self.x1 - self.x0)
        self.sy = (_HEIGHT - _TOP - _BOTTOM) / (self.y1 - self.y0)
        self.bottom = _HEIGHT - _BOTTOM

    def x(self, intensity: float) -> float:
        """Return where an intensity lies."""
        return _LEFT + (math.log10(intensity) - self.x0) * self.sx

    def y(self, tflops: float) -> float:
        """Return where a rate lies."""
        return self.bottom - (math.log10(tflops) - self.y0) * self.sy


def draw(roof: Roofline) -> str:
    """Return the figure as SVG that needs no script."""
    axes = Axes(roof)
    title = palette.unique("kw-title")
    parts = [*_grid(axes), *_roofs(roof, axes), *_points(roof, axes)]
    words = html.escape(str(roof))
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="{title}" '
        f'xmlns="http://www.w3.org/2000/svg"><title id="{title}">{words}</title>'
        f'{"".join(parts)}<g class="kw-probe"><line/><circle r="6"/></g></svg>'
    )


def page(roof: Roofline) -> str:
    """Return figure, slider, caption and table for a notebook."""
    axes = Axes(roof)
    figure = palette.unique("kw-roof")
    data = {
        "gbps": roof.gbps,
        "roof": roof.roof(),
        "left": _LEFT,
        "bottom": axes.bottom,
        "x0": axes.x0,
        "y0": axes.y0,
        "sx": axes.sx,
        "sy": axes.sy,
    }
    return (
        f'<figure class="kw-roof" id="{figure}"><style>{STYLE}</style>{draw(roof)}'
        f'<div class="kw-control"><label for="{figure}-slider">A kernel of</label>'
        f'<input type="range" data-lm-suppress-shortcuts="true" '
        f'id="{figure}-slider" min="{axes.x0}" max="{axes.x1}" '
        f'step="0.01" value="{axes.x0 + 1}" aria-describedby="{figure}-words">'
        f'<output id="{figure}-words" for="{figure}-slider" aria-live="polite">'
        "</output></div>"
        f"<figcaption>{html.escape(roof.caption())}</figcaption>{_table(roof)}"
        f"<script>({SCRIPT})({json.dumps(figure)}, {json.dumps(data)});</script>"
        "</figure>"
    )


def _table(roof: Roofline) -> str:
    if not roof.points:
        return ""
    head, *lines = roof.table()
    top = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>"
        for line in lines
    )
    table = f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="kw-table">{table}</div>'


def _grid(axes: Axes) -> list[str]:
    parts = []
    right = _WIDTH - _RIGHT
    for at in log_ticks(10.0**axes.x0, 10.0**axes.x1):
        x = axes.x(at)
        parts.append(_line(x, _TOP, x, axes.bottom, "kw-grid"))
        parts.append(_text(x, axes.bottom + 24, f"{at:,g}", "kw-small kw-mid"))
    for rate in log_ticks(10.0**axes.y0, 10.0**axes.y1):
        y = axes.y(rate)
        parts.append(_line(_LEFT, y, right, y, "kw-grid"))
        parts.append(_text(_LEFT - 8, y + 6, f"{rate:,g}", "kw-small kw-end"))
    middle = (_LEFT + right) / 2
    parts.append(
        _text(middle, _HEIGHT - 12, "arithmetic intensity, FLOP/byte", "kw-mid")
    )
    height = (_TOP + axes.bottom) / 2
    parts.append(
        palette.text(
            24,
            height,
            "TFLOP/s",
            class_="kw-mid",
            transform=f"rotate(-90 24 {height:g})",
        )
    )
    return parts


def _roofs(roof: Roofline, axes: Axes) -> list[str]:
    parts = []
    start, right = 10.0**axes.x0, 10.0**axes.x1
    highest = max(roof.roofs, key=lambda name: roof.roofs[name])
    corner = axes.x(roof.ridge(highest)), axes.y(roof.roofs[highest])
    parts.append(
        f'<path class="kw-line" style="--c: {palette.series(0)}" d="M'
        f"{axes.x(start):g} {axes.y(roof.attainable(start)):g} "
        f'L{corner[0]:g} {corner[1]:g}"/>'
    )
    middle = math.sqrt(start * roof.ridge(highest))
    x, y = axes.x(middle), axes.y(roof.attainable(middle))
    slope = -math.degrees(math.atan2(axes.sy, axes.sx))
    parts.append(
        palette.text(
            x,
            y - 10,
            f"copy, {roof.gbps:,.0f} GB/s",
            class_="kw-small kw-mid",
            transform=f"rotate({slope:.1f} {x:g} {y - 10:g})",
        )
    )
    for index, (name, rate) in enumerate(roof.roofs.items()):
        y = axes.y(rate)
        colour = palette.series(1 + index)
        left = axes.x(roof.ridge(name))
        parts.append(
            f'<path class="kw-line" style="--c: {colour}" d="M{left:g} {y:g} '
            f'H{axes.x(right):g}"/>'
        )
        words = f"{name}, {three_digits(rate)} TFLOP/s"
        parts.append(_text(_WIDTH - _RIGHT - 4, y - 8, words, "kw-small kw-end"))
    return parts


def _points(roof: Roofline, axes: Axes) -> list[str]:
    parts = []
    for index, point in enumerate(roof.points):
        bound = roof.attainable(point.intensity, point.roof)
        rate = point.tflops
        x, y = axes.x(point.intensity), axes.y(rate or bound)
        colour = f"--c: {palette.series(2 + index)}"
        if rate is not None:
            parts.append(
                f'<line class="kw-drop" style="{colour}" x1="{x:g}" y1="{y:g}" '
                f'x2="{x:g}" y2="{axes.y(bound):g}"/>'
            )
        kind = "" if rate is not None else ' class="kw-open"'
        parts.append(f'<circle{kind} style="{colour}" cx="{x:g}" cy="{y:g}" r="7"/>')
        # Below and to the right of the point: the roof is above it and to the left.
        right = _WIDTH - _RIGHT
        near_edge = x > right - 200
        parts.append(
            _text(
                min(x, right - 80) if near_edge else x + 12,
                min(y + (28 if near_edge else 22), axes.bottom - 6),
                point.label,
                "kw-mid" if near_edge else "kw-label",
            )
        )
    return parts


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def _text(x: float, y: float, label: str, kind: str) -> str:
    return palette.text(x, y, label, class_=kind)
