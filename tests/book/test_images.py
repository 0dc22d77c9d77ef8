"""The README's picture is what the course draws today."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "book"))

import images


def test_the_picture_is_drawn_from_a_kernel_and_up_to_date() -> None:
    drawn = images.launch_geometry()
    assert drawn.count('class="kw-cell') == 32 + 30
    stored = images.TARGET.read_text(encoding="utf-8")
    assert stored == drawn, "it is stale: run `python book/images.py`"
