"""Measurements that come with the course: read, never made up."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def stored_run(name: str, folder: Path = RESULTS) -> dict[str, Any] | None:
    """Return a stored benchmark, ``None`` where this installation has none.

    Args:
        name: of the file, without ``.json``.
        folder: where the results lie.
    """
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def stored_text(name: str, keep: str = "", folder: Path = RESULTS) -> str:
    """Return what a tool printed once, or only the lines that matter here.

    Args:
        name: of the file.
        keep: regular expression; of each run of lines that do not match it, ``…``
            is left. Nothing is left out if not given.
        folder: where the results lie.
    """
    path = folder / name
    if not path.is_file():
        return f"not measured: no output {name} is stored here"
    lines = [line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()]
    if not keep:
        return "\n".join(lines)
    shown: list[str] = []
    for line in lines:
        if re.search(keep, line):
            shown.append(line)
        elif line.strip(" =") and (not shown or shown[-1] != "    …"):
            shown.append("    …")
    return "\n".join(shown)
