"""Draw the README's picture from a kernel: ``python book/images.py``.

A picture that is drawn by hand goes stale; this one is what ``launch_map`` shows.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import kernelwright as kw  # noqa: E402
from autograder.exercises import all_exercises  # noqa: E402
from autograder.regions import read_region  # noqa: E402
from kernelwright.draw import launch_map  # noqa: E402
from kernelwright.draw.script import STYLE  # noqa: E402

TARGET = ROOT / "book/images/launch-geometry.svg"
# Colours for a page that has no palette of its own, and is light or dark.
_DARK = "@media (prefers-color-scheme: dark) { .kw-launch text { fill: #dde5ee } }"


def launch_geometry() -> str:
    """Return the picture: 4 blocks of 8 threads on 30 elements, two threads idle."""
    # From the answer itself: the students' edition, which has none, draws nothing.
    exercise = all_exercises()["vector_add"]
    answer = read_region(ROOT / exercise.source, exercise.id).text_solved
    kernel = kw.cuda.compile(answer)[exercise.name]
    x, y = torch.arange(30.0), torch.ones(30)
    svg = launch_map(kernel[4, 8], x, y, torch.empty(30), 30).svg()
    # The title's id is drawn anew each time, and the file must not change by itself.
    drawn = re.search(r'aria-labelledby="([^"]+)"', svg)
    if drawn:
        svg = svg.replace(drawn.group(1), "launch-geometry")
    style = '<svg class="kw-launch" style="max-width:46rem" width="736"'
    svg = svg.replace("<svg", style, 1)
    return svg.replace("<title", f"<style>{STYLE}{_DARK}</style><title", 1) + "\n"


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(launch_geometry(), encoding="utf-8")
    print(TARGET.relative_to(ROOT))
