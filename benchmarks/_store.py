"""Stored results: what was measured, on which device, with what, and when."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import kernelwright as kw

RESULTS = Path(__file__).parent / "results"
"""What the book shows, from the machines that it names."""

OUT = Path(os.environ.get("KERNELWRIGHT_RESULTS") or RESULTS / "here")
"""Where a run is put: beside those, and git does not know of it."""

_PACKAGES = ("torch", "triton", "cupy-cuda12x", "cupy-cuda13x", "cuda-core")


def slug(device: str) -> str:
    """Turn a device's name into a part of a file name: ``nvidia-h200``."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def versions() -> dict[str, str]:
    """Return what took part in the measurement, by name."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    driver = kw.device().driver
    if driver:
        found["driver"] = driver
    return found


def store(
    stem: str, rows: Sequence[Mapping[str, Any]], folder: Path, **facts: Any
) -> Path:
    """Write one run; numbers that were not measured are left out, never made up."""
    name = torch.cuda.get_device_name()
    record = {
        "stem": stem,
        "device": name,
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python -m", f"benchmarks.{stem}", *_told()]),
        "versions": versions(),
        **facts,
        "rows": list(rows),
    }
    return write(f"{stem}-{slug(name)}", record, folder)


def write(name: str, record: Mapping[str, Any], folder: Path) -> Path:
    """Write a record as ``<name>.json`` where results stand; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


def said_of(path: Path) -> str:
    """Say where a run was stored, and what follows of it."""
    if path.parent.resolve() == RESULTS.resolve():
        return f"stored in {path}; chapters that show it: run `make notebooks`"
    return f"stored in {path}; the book goes on showing what stands in {RESULTS}"


def _told() -> list[str]:
    """Return what the command line asked for; where to put it is nobody's business."""
    told = sys.argv[1:]
    if "--out" in told:
        at = told.index("--out")
        del told[at : at + 2]
    return told
