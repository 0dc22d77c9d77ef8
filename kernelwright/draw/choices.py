"""A figure with a slider for each of several parameters: SVG that stands alone."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.draw import palette
from kernelwright.draw.steps import STYLE, Steps

SCRIPT = """
function (id, words, named) {
  const root = document.getElementById(id);
  if (!root) return;
  const sliders = root.querySelectorAll("input");
  const says = root.querySelector("output");
  const values = root.querySelectorAll(".kw-value");
  const frames = root.querySelectorAll("g[data-frame]");
  const show = () => {
    let chosen = 0;
    sliders.forEach((slider, at) => {
      chosen = chosen * named[at].length + Number(slider.value);
      values[at].textContent = named[at][Number(slider.value)];
    });
    sliders.forEach((slider) => slider.setAttribute("aria-valuetext", words[chosen]));
    frames.forEach((frame, at) => frame.classList.toggle("kw-gone", at !== chosen));
    says.textContent = words[chosen];
  };
  sliders.forEach((slider) => slider.addEventListener("input", show));
  root.querySelectorAll(".kw-live").forEach((part) => { part.hidden = false; });
  show();
}
""".strip()


@dataclass(frozen=True, repr=False)
class Choices(Steps):
    """Pictures of all choices; without a script the first one is there.

    Args:
        choices: the name of each parameter, and its values in words; a frame for
            each choice, the last parameter's values next to each other.
    """

    choices: Sequence[tuple[str, Sequence[str]]] = ()

    def _repr_html_(self) -> str:
        figure = palette.unique("kw-choices")
        words = json.dumps([frame.words for frame in self.frames])
        named = json.dumps([list(values) for _, values in self.choices])
        # A word such as </script> must not end the script.
        words, named = (said.replace("</", "<\\/") for said in (words, named))
        return (
            f'<figure class="kw-steps" id="{figure}"><style>{STYLE}</style>'
            f"{self._control(figure)}"
            '<div class="kw-scroll" tabindex="0" role="group" aria-label="drawing" '
            'data-lm-suppress-shortcuts="true">'
            f"{self.svg()}</div>"
            f"<figcaption>{html.escape(self.caption)}</figcaption>"
            f"<script>({SCRIPT})({json.dumps(figure)}, {words}, {named});</script>"
            "</figure>"
        )

    def _control(self, figure: str) -> str:
        parts = []
        for at, (name, values) in enumerate(self.choices):
            slider = f"{figure}-slider-{at}"
            parts.append(
                f'<div class="kw-control"><label for="{slider}" class="kw-live" '
                f'hidden>{html.escape(name)}: <span class="kw-value">'
                f"{html.escape(values[0])}</span></label>"
                f'<input type="range" data-lm-suppress-shortcuts="true" id="{slider}" '
                f'class="kw-live" hidden min="0" max="{len(values) - 1}" value="0" '
                f'aria-describedby="{figure}-words"></div>'
            )
        return "".join(parts) + (
            f'<div class="kw-control"><output id="{figure}-words" aria-live="polite">'
            f"{html.escape(self.frames[0].words)}</output></div>"
        )
