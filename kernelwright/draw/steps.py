"""A figure of several frames that a slider goes through: SVG that stands alone.

Each frame is drawn beforehand; the script only shows one and hides the others, so
that without it the first is there. Nothing is fetched, no name is global.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from kernelwright.draw import palette

STYLE = f"""
.kw-steps {{ margin: .5rem 0; max-width: 46rem; color: {palette.INK}; }}
.kw-steps svg {{ width: 100%; height: auto; display: block; }}
.kw-steps text {{ fill: {palette.INK}; font: 13px system-ui, sans-serif;
  text-anchor: middle; }}
.kw-steps .kw-head {{ fill: {palette.MUTED}; font-size: 18px; text-anchor: start; }}
.kw-steps .kw-row {{ fill: {palette.MUTED}; font-size: 15px; text-anchor: end; }}
.kw-steps .kw-tick {{ fill: {palette.MUTED}; font-size: 12px; }}
.kw-steps .kw-used {{ fill: var(--c); fill-opacity: .4; stroke: var(--c);
  stroke-width: 1.2; }}
.kw-steps .kw-waste {{ fill: {palette.SERIES[1]}; fill-opacity: .28;
  stroke: {palette.SERIES[1]}; stroke-opacity: .5; stroke-dasharray: 3 3; }}
.kw-steps .kw-wrong {{ fill: {palette.BAD}; fill-opacity: .35; stroke: {palette.BAD};
  stroke-width: 1.4; }}
.kw-steps .kw-none {{ fill: none; stroke: {palette.LINE}; stroke-opacity: .45; }}
.kw-steps .kw-gone {{ display: none; }}
.kw-steps .kw-control {{ display: flex; flex-wrap: wrap; gap: .3rem .7rem;
  align-items: center; margin: .4rem 0; }}
.kw-steps input {{ flex: 1 1 12rem; min-width: 0; }}
.kw-steps output {{ flex: 1 1 100%; min-height: 2.6em;
  font: 0.95em ui-monospace, monospace; }}
.kw-steps figcaption {{ color: {palette.MUTED}; }}
"""

SCRIPT = """
function (id, words) {
  const root = document.getElementById(id);
  if (!root) return;
  const slider = root.querySelector("input");
  const says = root.querySelector("output");
  const frames = root.querySelectorAll("g[data-frame]");
  const show = () => {
    const chosen = Number(slider.value);
    frames.forEach((frame, at) =>
      frame.classList.toggle("kw-gone", at !== chosen));
    says.textContent = words[chosen];
  };
  slider.addEventListener("input", show);
  show();
}
""".strip()


@dataclass(frozen=True)
class Frame:
    """One picture of the series.

    Args:
        svg: its elements.
        words: the same in a sentence.
    """

    svg: str
    words: str


@dataclass(frozen=True, repr=False)
class Steps:
    """A drawn series; a notebook shows it, ``str`` says it in words.

    Args:
        frames: what the slider goes through, at least one.
        base: what all frames share.
        width, height: of the drawing.
        slider: what the slider chooses, such as ``Request``.
        caption: what the figure shows.
    """

    frames: Sequence[Frame]
    base: str
    width: float
    height: float
    slider: str
    caption: str

    def __str__(self) -> str:
        return "\n".join([self.caption, *(frame.words for frame in self.frames)])

    __repr__ = __str__

    def svg(self, shown: int = 0) -> str:
        """Return the picture alone, with one frame shown."""
        title = palette.unique("kw-title")
        drawn = []
        for number, frame in enumerate(self.frames):
            gone = "" if number == shown else ' class="kw-gone"'
            drawn.append(f'<g data-frame="{number}"{gone}>{frame.svg}</g>')
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-labelledby="{title}" xmlns="http://www.w3.org/2000/svg">'
            f'<title id="{title}">{html.escape(self.caption)} '
            f"{html.escape(self.frames[shown].words)}</title>"
            f"{self.base}{''.join(drawn)}</svg>"
        )

    def _repr_html_(self) -> str:
        figure = palette.unique("kw-steps")
        words = json.dumps([frame.words for frame in self.frames])
        return (
            f'<figure class="kw-steps" id="{figure}"><style>{STYLE}</style>{self.svg()}'
            f"{self._control(figure)}"
            f"<figcaption>{html.escape(self.caption)}</figcaption>"
            # A word such as </script> must not end the script.
            f"<script>({SCRIPT})({json.dumps(figure)}, "
            f"{words.replace('</', '<' + chr(92) + '/')});</script></figure>"
        )

    def _control(self, figure: str) -> str:
        last = len(self.frames) - 1
        first = html.escape(self.frames[0].words)
        if not last:
            return (
                f'<div class="kw-control"><input type="range" min="0" max="0" hidden>'
                f"<output>{first}</output></div>"
            )
        return (
            f'<div class="kw-control"><label for="{figure}-slider">'
            f'{html.escape(self.slider)}</label><input type="range" '
            f'id="{figure}-slider" min="0" max="{last}" value="0" '
            f'aria-describedby="{figure}-words"><output id="{figure}-words" '
            f'for="{figure}-slider" aria-live="polite">{first}</output></div>'
        )


def chosen_requests(
    report: Any, space: str, line: int | None, op: str, cost: Callable[[Any], float]
) -> list[Any]:
    """Return the requests of one line: the given one, or the costliest."""
    found = [
        request
        for request in report.accesses(line=line, space=space)
        if request.op.startswith(op)
    ]
    by_line: dict[tuple[int, str], list[Any]] = {}
    for request in found:
        by_line.setdefault((request.line, request.op), []).append(request)
    return max(by_line.values(), key=lambda each: mean(map(cost, each)), default=[])


def spread(found: Sequence[Any], limit: int) -> Sequence[Any]:
    """Return at most so many of them, evenly chosen."""
    return found[:: max(1, -(-len(found) // limit))]


def nothing_to_draw(space: str, op: str) -> Steps:
    """Return the figure of a kernel that does not touch such memory (yet)."""
    words = f"no {op or 'access'} to {space} memory was traced"
    picture = palette.text(12, 26, words, class_="kw-head")
    return Steps([Frame(picture, words)], "", 640, 44, "Request", "Nothing to draw.")
