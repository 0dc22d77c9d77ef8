"""A figure of several frames that a slider goes through: SVG that stands alone.

Each frame is drawn beforehand; the script only shows one and hides the others, so
that without it the first is there, and no control that could not work. Nothing is
fetched, no name is global.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from kernelwright.draw import palette

_SAID = 4  # frames that a terminal shows in words

STYLE = f"""
.kw-steps {{ margin: .5rem 0; max-width: 46rem; color: {palette.INK}; }}
.kw-steps svg {{ width: 100%; height: auto; display: block; }}
.kw-steps svg.kw-narrow {{ max-width: 33rem; }}
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
.kw-steps .kw-shared {{ fill: {palette.MUTED}; fill-opacity: .3;
  stroke: {palette.MUTED}; }}
.kw-steps .kw-none {{ fill: none; stroke: {palette.LINE}; stroke-opacity: .45; }}
.kw-steps .kw-masked {{ fill: none; stroke: {palette.MUTED}; stroke-width: 1.4;
  stroke-dasharray: 3 3; }}
.kw-steps .kw-gone {{ display: none; }}
.kw-steps .kw-past {{ opacity: .4; }}
.kw-steps .kw-scroll {{ overflow-x: auto; }}
.kw-steps .kw-scroll:focus-visible {{ outline: 2px solid {palette.SERIES[0]}; }}
.kw-steps .kw-control {{ display: flex; flex-wrap: wrap; gap: .3rem .7rem;
  align-items: center; margin: .4rem 0; }}
.kw-steps .kw-control [hidden] {{ display: none; }}
.kw-steps input {{ flex: 1 1 9rem; min-width: 0; }}
.kw-steps button {{ font: inherit; color: inherit; background: transparent;
  border: 1px solid {palette.LINE}; border-radius: 4px; min-width: 5.2em;
  padding: .15em .7em; cursor: pointer; }}
.kw-steps button:focus-visible {{ outline: 2px solid {palette.SERIES[0]}; }}
.kw-steps output {{ flex: 1 1 100%; min-height: 2.6em;
  font: 0.95em ui-monospace, monospace; }}
.kw-steps figcaption {{ color: {palette.MUTED}; font-weight: 400; }}
@media (max-width: 600px) {{ .kw-steps .kw-wide {{ min-width: 36rem; }} }}
"""

SCRIPT = """
function (id, words, overview, trail) {
  const root = document.getElementById(id);
  if (!root) return;
  const slider = root.querySelector("input");
  const button = root.querySelector("button");
  const says = root.querySelector("output");
  const frames = root.querySelectorAll("g[data-frame]");
  let timer = 0;
  const show = () => {
    const chosen = Number(slider.value);
    const all = overview && chosen === 0;
    frames.forEach((frame, at) => {
      const past = (overview || trail) && at > 0 && at < chosen;
      frame.classList.toggle("kw-past", past);
      frame.classList.toggle("kw-gone", at !== chosen && !all && !past);
    });
    says.textContent = words[chosen];
    slider.setAttribute("aria-valuetext", words[chosen]);
  };
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    if (button) button.textContent = "Play";
  };
  const step = () => {
    if (!document.contains(root)) return stop();
    slider.value = Number(slider.value) + 1;
    show();
    if (slider.value === slider.max) stop();
  };
  slider.addEventListener("input", () => { stop(); show(); });
  if (button) button.addEventListener("click", () => {
    if (timer) return stop();
    if (slider.value === slider.max) slider.value = overview || trail ? 0 : -1;
    button.textContent = "Pause";
    timer = setInterval(step, 900);
    step();
  });
  root.querySelectorAll(".kw-live").forEach((part) => { part.hidden = false; });
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
        overview: the first frame shows all of them together.
        trail: so does each frame those before it, faintly, but not the first: for
            frames that have an order in time. An overview has one.
        wide: on a phone the picture keeps a size that can be read, and scrolls.
        narrow: on a wide page the picture does not grow to the page's width.
    """

    frames: Sequence[Frame]
    base: str
    width: float
    height: float
    slider: str
    caption: str
    overview: bool = False
    trail: bool = False
    wide: bool = True
    narrow: bool = False

    def __str__(self) -> str:
        words = [frame.words for frame in self.frames[:_SAID]]
        more = len(self.frames) - len(words)
        return "\n".join(
            [self.caption, *words, *([f"and {more} more"] if more else [])]
        )

    __repr__ = __str__

    def svg(self, shown: int = 0) -> str:
        """Return the picture alone, with one frame shown."""
        title = palette.unique("kw-title")
        wide = ' class="kw-wide"' if self.wide else ""
        wide = ' class="kw-narrow"' if self.narrow else wide
        drawn = []
        for number, frame in enumerate(self.frames):
            kind = self._kind(number, shown)
            drawn.append(f'<g data-frame="{number}"{kind}>{frame.svg}</g>')
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img"{wide} '
            f'aria-labelledby="{title}" xmlns="http://www.w3.org/2000/svg">'
            f'<title id="{title}">{html.escape(self.caption)} '
            f"{html.escape(self.frames[shown].words)}</title>"
            f"{self.base}{''.join(drawn)}</svg>"
        )

    def _kind(self, number: int, shown: int) -> str:
        if number == shown or (self.overview and shown == 0):
            return ""
        past = (self.overview or self.trail) and 0 < number < shown
        return f' class="{"kw-past" if past else "kw-gone"}"'

    def _repr_html_(self) -> str:
        figure = palette.unique("kw-steps")
        words = json.dumps([frame.words for frame in self.frames])
        # A word such as </script> must not end the script.
        words = words.replace("</", "<\\/")
        return (
            f'<figure class="kw-steps" id="{figure}"><style>{STYLE}</style>'
            # Above the picture: in reach, and its words near, however tall that is.
            f"{self._control(figure)}"
            # Something that scrolls must be in reach of the keyboard.
            '<div class="kw-scroll" tabindex="0" role="group" aria-label="drawing" '
            'data-lm-suppress-shortcuts="true">'
            f"{self.svg()}</div>"
            f"<figcaption>{html.escape(self.caption)}</figcaption>"
            f"<script>({SCRIPT})({json.dumps(figure)}, {words}, "
            f"{json.dumps(self.overview)}, {json.dumps(self.trail)});</script></figure>"
        )

    def _control(self, figure: str) -> str:
        last = len(self.frames) - 1
        first = html.escape(self.frames[0].words)
        if not last:
            return (
                f'<div class="kw-control"><input type="range" min="0" max="0" hidden>'
                f"<output>{first}</output></div>"
            )
        play = (
            '<button type="button" class="kw-live" data-lm-suppress-shortcuts="true" '
            "hidden>Play</button>"
        )
        return (
            f'<div class="kw-control">{play}<label for="{figure}-slider" '
            f'class="kw-live" hidden>{html.escape(self.slider)}</label>'
            f'<input type="range" data-lm-suppress-shortcuts="true" '
            f'id="{figure}-slider" class="kw-live" hidden min="0" '
            f'max="{last}" value="0" aria-describedby="{figure}-words">'
            f'<output id="{figure}-words" for="{figure}-slider" aria-live="polite">'
            f"{first}</output></div>"
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
    """Return at most so many requests of the first block, evenly chosen."""
    first = [request for request in found if request.block == found[0].block]
    return first[:: max(1, -(-len(first) // limit))]


def nothing_to_draw(where: str, op: str) -> Steps:
    """Return the figure of a kernel that does not touch such memory (yet)."""
    words = f"no {op or 'access'} to {where} was traced"
    picture = palette.text(12, 26, words, class_="kw-head")
    return Steps([Frame(picture, words)], "", 640, 44, "Request", "Nothing to draw.")
